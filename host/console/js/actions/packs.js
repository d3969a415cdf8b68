// What can be done with packs and their generations.

import { post } from "../api.js";
import { plural } from "../format.js";
import { asking } from "./asking.js";

const activation = ({ pack, active, previous }) => {
  if (active === null) return `No generation of ${pack} is active: its routes are closed.`;
  return active === previous
    ? `Generation ${active} of ${pack} was active already.`
    : `Generation ${active} of ${pack} is active.`;
};

/** Has another generation serve. */
export function activateGeneration(generation) {
  const name = `${generation.pack}@${generation.generation}`;
  return asking("Activate…", "primary", {
    title: `Activate ${name}`,
    says: [
      "It is loaded first; if it cannot serve, nothing changes. Then new events are admitted under it, and what was admitted before ends on the generation that admitted it.",
    ],
    command: `forebay pack activate ${name}`,
    run: async () =>
      activation(await post(`/api/v1/packs/${generation.pack}/activate`, { generation: generation.generation })),
  });
}

/** Has the newest older generation serve again that was active. */
export function rollbackPack(pack) {
  return asking("Roll back…", "danger", {
    title: `Roll back pack ${pack}`,
    says: [
      "The newest older generation that was active is active again. What was admitted under the present one still ends on it.",
    ],
    command: `forebay pack rollback ${pack}`,
    run: async () => activation(await post(`/api/v1/packs/${pack}/rollback`)),
  });
}

/** Closes a pack's routes. */
export function deactivatePack(pack) {
  return asking("Deactivate…", "danger", {
    title: `Deactivate pack ${pack}`,
    says: [
      "Its routes are closed: providers that deliver to them are answered 404, and give up in their time. What was admitted is worked off. To open them again, activate a generation.",
    ],
    command: `forebay pack deactivate ${pack}`,
    run: async () => activation(await post(`/api/v1/packs/${pack}/deactivate`)),
  });
}

/** Moves a generation's unfinished work, or ends it. */
export function drainGeneration(generation, others) {
  const name = `${generation.pack}@${generation.generation}`;
  return asking("Drain…", "danger", {
    title: `Drain ${name}`,
    says: [
      "Its unfinished work is moved to another generation that declares the same routes, in its place in its lane, or ends as dead. What runs is left alone. An end as dead cannot be taken back; replays are possible.",
    ],
    fields: [
      {
        name: "target",
        label: "What becomes of its work",
        value: others.length ? String(others[0]) : "dead",
        words: [
          ...others.map((number) => [String(number), `It is moved to generation ${number}`]),
          ["dead", "It ends as dead"],
        ],
      },
    ],
    command: ({ target }) => `forebay pack drain ${name} ${target === "dead" ? "--dead-letter" : `--to ${target}`}`,
    run: async ({ target }) => {
      const wish = target === "dead" ? { dead_letter: true } : { to: Number(target) };
      const drained = await post(`/api/v1/packs/${generation.pack}/drain`, {
        generation: generation.generation,
        ...wish,
      });
      return `${plural(drained.rows, "work item was", "work items were")} moved or ended; ${drained.left} still refer to the generation.`;
    },
  });
}
