// What can be done with shards.

import { post } from "../api.js";
import { plural } from "../format.js";
import { asking } from "./asking.js";

/** Has a checkpoint be made now. */
export function checkpointShard(shard) {
  return asking("Checkpoint…", "primary", {
    title: `Make a checkpoint of shard ${shard.shard}`,
    says: [
      "A copy of its index is made now and kept where checkpoints are kept. That costs some disk and network; nothing stops meanwhile.",
    ],
    command: `forebay shard checkpoint ${shard.shard}`,
    run: async () => {
      const { checkpoint } = await post(`/api/v1/shards/${shard.shard}/checkpoint`);
      return checkpoint
        ? `It is made: ${plural(checkpoint.bytes, "byte", "bytes")}, up to change ${checkpoint.applied}.`
        : "It is still being made.";
    },
  });
}
