// Actions on shards.

import { post } from "../api.js";
import { plural } from "../format.js";
import { asking } from "./asking.js";

/** Makes a checkpoint. */
export function checkpointShard(shard) {
  return asking("Checkpoint…", "primary", {
    title: `Make a checkpoint of shard ${shard.shard}`,
    says: [
      "A copy of its index is made and stored with the other checkpoints. This costs disk and network; publishing continues.",
    ],
    command: `forebay shard checkpoint ${shard.shard}`,
    run: async () => {
      const { checkpoint } = await post(`/api/v1/shards/${shard.shard}/checkpoint`);
      return checkpoint
        ? `The checkpoint is made: ${plural(checkpoint.bytes, "byte", "bytes")}, up to change ${checkpoint.applied}.`
        : "The checkpoint is still being made.";
    },
  });
}
