// Actions on lanes. A lane is named as on the command line: NAMESPACE/DESTINATION, or DESTINATION for all namespaces.

import { post } from "../api.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { badge } from "../parts.js";
import { asking } from "./asking.js";

const laneName = ({ namespace, destination }) => (namespace ? `${namespace}/${destination}` : destination);
const laneWords = ({ namespace, destination }) =>
  namespace ? `of namespace ${namespace} to ${destination}` : `of all namespaces to ${destination}`;

function setGate(target, gate, text, kind, says, verb) {
  const withReason = gate !== "open";
  return asking(text, kind, {
    title: `${verb[0].toUpperCase()}${verb.slice(1)} ${laneName(target)}`,
    says: [`The lanes ${laneWords(target)}: ${says}`],
    fields: withReason ? [{ name: "reason", label: "Reason", hint: "Shown with the gate." }] : [],
    command: ({ reason }) => `forebay lane ${verb} ${laneName(target)}${reason ? ` --reason '${reason}'` : ""}`,
    run: async ({ reason }) => {
      const set = await post("/api/v1/lanes/gate", {
        destination: target.destination,
        ...(target.namespace ? { namespace: target.namespace } : {}),
        gate,
        ...(reason?.trim() ? { reason: reason.trim() } : {}),
      });
      return h("p", null, `The gate of ${laneName(set)} is `, badge(set.gate), ". Every host sees it within a second.");
    },
  });
}

/** Pauses a lane. */
export function pauseLane(target) {
  return setGate(
    target,
    "paused",
    "Pause…",
    "primary",
    "nothing is sent until they are resumed. Waiting messages stay, can be cancelled, and still expire.",
    "pause",
  );
}

/** Closes a lane. */
export function closeLane(target) {
  return setGate(
    target,
    "closed",
    "Close…",
    "danger",
    "nothing is sent any more. Waiting messages stay visible; a resume opens the lanes again.",
    "close",
  );
}

/** Resumes a lane. */
export function resumeLane(target) {
  return setGate(target, "open", "Resume…", "primary", "messages that are due are sent again.", "resume");
}

/** Opens, pauses or closes a destination by name, for all namespaces or for one. */
export function setAnyGate() {
  const target = ({ namespace, destination }) =>
    laneName({ namespace: namespace.trim(), destination: destination.trim() || "DESTINATION" });
  const verbs = { paused: "pause", closed: "close", open: "resume" };
  return asking("Set a gate…", "primary", {
    title: "Set the gate of a destination",
    says: [
      "Every host sees the gate within a second, and it outlives restarts. Attempts that have begun are finished.",
    ],
    fields: [
      { name: "destination", label: "Destination" },
      { name: "namespace", label: "Namespace", hint: "Empty for all namespaces." },
      {
        name: "gate",
        label: "Gate",
        value: "paused",
        words: [
          ["paused", "Paused: nothing is sent for now"],
          ["closed", "Closed: nothing is sent any more"],
          ["open", "Open: messages that are due are sent"],
        ],
      },
      { name: "reason", label: "Reason", hint: "Shown with the gate." },
    ],
    command: (values) =>
      `forebay lane ${verbs[values.gate]} ${target(values)}${values.reason && values.gate !== "open" ? ` --reason '${values.reason}'` : ""}`,
    run: async ({ destination, namespace, gate, reason }) => {
      const optional = (name, text) => (text.trim() ? { [name]: text.trim() } : {});
      const set = await post("/api/v1/lanes/gate", {
        destination: destination.trim(),
        gate,
        ...optional("namespace", namespace),
        ...optional("reason", reason),
      });
      return h("p", null, `The gate of ${laneName(set)} is `, badge(set.gate), ".");
    },
  });
}

/** Pages of dead messages per click; for more, use the command line. */
const REDRIVE_PAGES_MAX = 200;

/** Redrives a lane's dead messages, page by page. */
export function redriveLane(target) {
  return asking("Redrive dead…", "primary", {
    title: `Send the dead messages of ${laneName(target)} again`,
    says: [
      `Every dead message ${laneWords(target)} that has not expired is sent again, with the same idempotency key.`,
    ],
    command: `forebay message redrive --lane ${laneName(target)}`,
    label: "Send them again",
    run: async () => {
      const total = { redriven: 0, expired: 0 };
      let after = null;
      for (let page = 0; page < REDRIVE_PAGES_MAX; page += 1) {
        const wish = { namespace: target.namespace, destination: target.destination, ...(after ? { after } : {}) };
        const answer = await post("/api/v1/lanes/redrive", wish);
        total.redriven += answer.redriven;
        total.expired += answer.expired;
        after = answer.next;
        if (!after) break;
      }
      const rest = after ? " There are more: repeat this." : "";
      return `${plural(total.redriven, "message is", "messages are")} sent again; ${plural(total.expired, "has", "have")} expired.${rest}`;
    },
  });
}
