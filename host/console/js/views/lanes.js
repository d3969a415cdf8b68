// Destination Lanes: their gates, circuits and pending messages.

import { closeLane, pauseLane, redriveLane, resumeLane, setAnyGate } from "../actions/lanes.js";
import { withQuery } from "../api.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, filters, heading, link, notice, section, table, time } from "../parts.js";
import { circuitTone } from "../states.js";

const FILTERS = [
  { name: "namespace", label: "Namespace" },
  { name: "destination", label: "Destination" },
];

export async function lanes({ path, query, get }) {
  const wanted = { namespace: query.get("namespace"), destination: query.get("destination") };
  const shown = await get(withQuery("/api/v1/lanes", wanted));
  const isFiltered = Boolean(wanted.namespace || wanted.destination);
  return [
    heading("Lanes", {
      about: "A lane holds the messages of one namespace to one destination. These are the lanes of this host's shards.",
      actions: [setAnyGate()],
    }),
    filters(path, query, FILTERS),
    shown.elsewhere.length
      ? notice("info", `Other hosts own shards ${shown.elsewhere.join(", ")} and know their lanes.`)
      : null,
    shown.more ? notice("info", "There are more lanes: narrow the filters.") : null,
    shown.gates.length ? section("Gates that are not open", gateTable(shown.gates)) : null,
    section("Lanes", laneTable(shown.items, shown.gates, isFiltered)),
  ];
}

function gateTable(gates) {
  const columns = [
    ["Destination", (gate) => (gate.namespace ? `${gate.namespace}/${gate.destination}` : gate.destination), "fit"],
    ["Namespace", (gate) => gate.namespace ?? "all", "fit"],
    ["Gate", (gate) => badge(gate.gate), "fit"],
    ["Reason", (gate) => gate.reason, "wide"],
    ["Since", (gate) => time(gate.changed_at), "fit"],
    ["Actions", (gate) => h("div", { class: "row-actions" }, resumeLane(gate)), "fit"],
  ];
  return table("Gates that are not open", columns, gates, (gate) => `${gate.namespace ?? ""}/${gate.destination}`, "");
}

function laneTable(rows, gates, isFiltered) {
  const target = ({ namespace, destination }) => ({ namespace, destination });
  // A gate for all namespaces is opened for all namespaces.
  const shut = (lane) => {
    const own = gates.some((gate) => gate.destination === lane.destination && gate.namespace === lane.namespace);
    return own ? target(lane) : { destination: lane.destination };
  };
  const actions = (lane) =>
    h(
      "div",
      { class: "row-actions" },
      lane.gate === "open" ? pauseLane(target(lane)) : resumeLane(shut(lane)),
      lane.gate === "closed" ? null : closeLane(target(lane)),
      redriveLane(target(lane)),
    );
  const columns = [
    ["Lane", (lane) => link(lane.lane, "/messages", target(lane)), "wide"],
    ["Gate", (lane) => badge(lane.gate), "fit"],
    ["Circuit", circuit, "fit"],
    ["Held", (lane) => (lane.held ? badge(lane.held) : null), "fit"],
    ["Waiting", (lane) => count(lane.pending), "number"],
    [
      "In flight",
      (lane) => [
        count(lane.in_flight_messages),
        lane.in_flight_bytes ? h("span", { class: "aside" }, bytes(lane.in_flight_bytes)) : null,
      ],
      "number",
    ],
    ["Eligible from", (lane) => time(lane.eligible_from), "fit"],
    ["Throttled until", (lane) => time(lane.throttled_until), "fit"],
    ["Actions", actions, "fit"],
  ];
  const empty = isFiltered
    ? "No lane fits these filters."
    : "This host knows no lane yet: a lane begins with the first message to its destination.";
  return table("Lanes", columns, rows, (lane) => lane.lane, empty);
}

function circuit(lane) {
  return [
    badge(lane.circuit, circuitTone(lane.circuit)),
    lane.circuit_until ? h("span", { class: "aside" }, "until ", time(lane.circuit_until)) : null,
  ];
}
