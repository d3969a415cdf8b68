// Actions on packs and their generations.

import { post } from "../api.js";
import { plural } from "../format.js";
import { asking } from "./asking.js";

const activation = ({ pack, active, previous }) => {
  if (active === null) return `No generation of ${pack} is active: its routes are closed.`;
  return active === previous ? `${pack}@${active} was active already.` : `${pack}@${active} is active.`;
};

/** Activates a generation. */
export function activateGeneration(generation) {
  const name = `${generation.pack}@${generation.generation}`;
  return asking("Activate…", "primary", {
    title: `Activate ${name}`,
    says: [
      "The host loads it first; if it cannot serve, nothing changes. New events are admitted under it. Admitted events end on the generation that admitted them.",
    ],
    command: `forebay pack activate ${name}`,
    run: async () =>
      activation(await post(`/api/v1/packs/${generation.pack}/activate`, { generation: generation.generation })),
  });
}

/** Activates the newest older generation that was active. */
export function rollbackPack(pack) {
  return asking("Roll back…", "danger", {
    title: `Roll back pack ${pack}`,
    says: [
      "The newest older generation that was active is active again. Events admitted under the present one still end on it.",
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
      "Its routes are closed: deliveries to them are answered 404, and most providers do not send them again. Admitted events are finished. Activating a generation opens the routes again.",
    ],
    command: `forebay pack deactivate ${pack}`,
    run: async () => activation(await post(`/api/v1/packs/${pack}/deactivate`)),
  });
}

/** Moves the unfinished work of a generation, or ends it. */
export function drainGeneration(generation, others) {
  const name = `${generation.pack}@${generation.generation}`;
  return asking("Drain…", "danger", {
    title: `Drain ${name}`,
    says: [
      "Its unfinished work moves to another generation that declares the same routes, or ends as dead. Running work is not touched. Ending as dead cannot be undone; dead work can be replayed.",
    ],
    fields: [
      {
        name: "target",
        label: "Its work",
        value: others.length ? String(others[0]) : "dead",
        words: [
          ...others.map((number) => [String(number), `Moves to ${generation.pack}@${number}`]),
          ["dead", "Ends as dead"],
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
      return `${plural(drained.rows, "work item was", "work items were")} moved or ended; ${drained.left} still refer to ${name}.`;
    },
  });
}
