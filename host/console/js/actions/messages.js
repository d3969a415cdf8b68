// Actions on messages.

import { post } from "../api.js";
import { h } from "../dom.js";
import { absolute, relative } from "../format.js";
import { badge } from "../parts.js";
import { asking, isAt } from "./asking.js";

/** Cancels a message that is not being published yet. */
export function cancelMessage(message) {
  return asking("Cancel…", "danger", {
    title: `Cancel message ${message.id}`,
    says: [
      `It is never sent to ${message.destination}, and this cannot be undone. If it is being published already, the host answers that it is too late.`,
    ],
    command: `forebay message cancel ${message.id}`,
    label: "Cancel the message",
    run: async () => isAt("The message", (await post(`/api/v1/messages/${message.id}/cancel`)).state),
  });
}

/** Moves a message to another time. */
export function rescheduleMessage(message) {
  return asking("Reschedule…", "primary", {
    title: `Reschedule message ${message.id}`,
    says: [
      `It is due ${absolute(message.due_at)} (${relative(message.due_at)}). Give the new time.`,
    ],
    fields: [
      {
        name: "delay",
        label: "Due in",
        value: "0s",
        hint: "Like 90s, 10m, 2h or 3d, from now. 0s is as soon as possible.",
      },
      { name: "at", label: "Or due at", hint: "Like 2030-01-31T08:00:00Z. Overrides the delay." },
    ],
    command: ({ delay, at }) =>
      `forebay message reschedule ${message.id} ${at ? `--at ${at}` : `--in ${delay || "0s"}`}`,
    run: async ({ delay, at }) => {
      const wish = at.trim() ? { due_at: at.trim() } : { delay_ms: milliseconds(delay) };
      const moved = await post(`/api/v1/messages/${message.id}/reschedule`, wish);
      return h("p", null, `It is due ${absolute(moved.due_at)}, and is `, badge(moved.state), ".");
    },
  });
}

const LENGTHS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration in milliseconds. Other text is sent as it is, and the host refuses it with a reason. */
function milliseconds(text) {
  const [, digits, unit] = /^(\d+)\s*(ms|s|m|h|d)$/.exec(text.trim()) ?? [];
  return digits ? Number(digits) * LENGTHS[unit] : text;
}

/** Redrives a dead message. */
export function redriveMessage(message) {
  return asking("Redrive…", "primary", {
    title: `Send message ${message.id} again`,
    says: [
      `It is sent to ${message.destination} again with the same idempotency key, by which the receiver recognizes a duplicate.`,
    ],
    command: `forebay message redrive ${message.id}`,
    label: "Send it again",
    run: async () => isAt("The message", (await post(`/api/v1/messages/${message.id}/redrive`)).state),
  });
}

/** Records the outcome of an uncertain message. */
export function resolveMessage(message) {
  return asking("Resolve…", "primary", {
    title: `Resolve message ${message.id}`,
    says: [
      `An attempt may have arrived at ${message.destination}. Ask the receiver about idempotency key ${message.idempotency_key}, then give the outcome.`,
    ],
    fields: [
      {
        name: "as",
        label: "Outcome",
        value: "retry",
        words: [
          ["retry", "It did not arrive: send it again at once"],
          ["published", "It arrived: the message ends as published"],
          ["dead", "It did not arrive: the message ends as dead"],
        ],
      },
    ],
    command: (values) => `forebay message resolve ${message.id} --as ${values.as}`,
    run: async (values) =>
      isAt("The message", (await post(`/api/v1/messages/${message.id}/resolve`, { as: values.as })).state),
  });
}
