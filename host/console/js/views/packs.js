// Packs and their generations, with the work that still refers to them.

import { activateGeneration, deactivatePack, drainGeneration, rollbackPack } from "../actions/packs.js";
import { h } from "../dom.js";
import { bytes, count, generation as generationName } from "../format.js";
import { badge, emptyState, heading, link, notice, table, time } from "../parts.js";

export async function packs({ get }) {
  const { items } = await get("/api/v1/packs");
  const names = [...new Set(items.map((generation) => generation.pack))].sort();
  return [
    heading("Packs", { about: "Connectors, in their generations. New events are admitted under the active one." }),
    names.length ? null : emptyState("No pack is installed: “forebay pack install FILE --activate” installs one."),
    names.map((name) =>
      pack(
        name,
        items.filter((generation) => generation.pack === name),
      ),
    ),
  ];
}

function pack(name, generations) {
  const active = generations.find((generation) => generation.stage === "active");
  const wasActive = generations.some((generation) => generation.activated_at && generation !== active);
  const actions = active ? [wasActive ? rollbackPack(name) : null, deactivatePack(name)] : [];
  return h(
    "section",
    { class: "panel", "data-key": `pack ${name}` },
    h(
      "div",
      { class: "panel-head" },
      h("h2", null, name),
      link("Queue", `/queue/${name}`),
      link("Events", "/events", { pack: name }),
      h("div", { class: "actions" }, actions),
    ),
    active
      ? null
      : notice("bad", "No generation is active: the routes are closed, and deliveries to them are answered 404."),
    table(
      `Generations of ${name}`,
      columns(generations),
      generations,
      (generation) => String(generation.generation),
      "",
    ),
  );
}

function columns(generations) {
  const others = (generation) =>
    generations.map((other) => other.generation).filter((number) => number !== generation.generation);
  const actions = (generation) =>
    h(
      "div",
      { class: "row-actions" },
      generation.stage === "active" ? null : activateGeneration(generation),
      Object.keys(generation.unfinished).length && generation.stage !== "active"
        ? drainGeneration(generation, others(generation))
        : null,
    );
  return [
    ["Generation", generationName, "fit"],
    ["Stage", (generation) => badge(generation.stage), "fit"],
    ["Version", (generation) => generation.version ?? "not readable", "fit"],
    ["Unfinished", unfinished, "wide"],
    ["Component", (generation) => bytes(generation.component_bytes), "number"],
    [
      "SHA-256",
      (generation) => h("code", { class: "clip", title: generation.sha256 }, generation.sha256.slice(0, 12)),
      "fit",
    ],
    ["Installed", (generation) => time(generation.installed_at), "fit"],
    ["Activated", (generation) => time(generation.activated_at), "fit"],
    ["Actions", actions, "fit"],
  ];
}

/** The unfinished work of a generation, by state. */
function unfinished({ unfinished }) {
  const parts = Object.entries(unfinished).map(([state, rows]) =>
    h("span", { class: "counted" }, badge(state), ` ${count(rows)}`),
  );
  return parts.length ? parts : null;
}
