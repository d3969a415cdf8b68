// What can be done with messages.

import { post } from "../api.js";
import { h } from "../dom.js";
import { absolute, relative } from "../format.js";
import { badge } from "../parts.js";
import { asking, isAt } from "./asking.js";

/** Takes a message back that is not being published yet. */
export function cancelMessage(message) {
  return asking("Cancel…", "danger", {
    title: `Cancel message ${message.id}`,
    says: [
      `It is not sent to ${message.destination} any more, and that cannot be taken back. If its publication has begun, the host says that it is too late.`,
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
      `It is due ${absolute(message.due_at)} (${relative(message.due_at)}). It is moved to the time that you give.`,
    ],
    fields: [
      {
        name: "delay",
        label: "Due in",
        value: "0s",
        hint: "Like 90s, 10m, 2h or 3d, from now. 0s is as soon as possible.",
      },
      { name: "at", label: "Or due at", hint: "Like 2030-01-31T08:00:00Z. If given, it counts." },
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

/** A time span as it is written in a field. What it cannot be is sent as it is, for the host to say what is wrong. */
function milliseconds(text) {
  const [, digits, unit] = /^(\d+)\s*(ms|s|m|h|d)$/.exec(text.trim()) ?? [];
  return digits ? Number(digits) * LENGTHS[unit] : text;
}

/** Sends a dead message again. */
export function redriveMessage(message) {
  return asking("Redrive…", "primary", {
    title: `Send message ${message.id} again`,
    says: [
      `It is dead, and goes to ${message.destination} again with the idempotency key that it always had. If it arrived before, the receiver can tell.`,
    ],
    command: `forebay message redrive ${message.id}`,
    label: "Send it again",
    run: async () => isAt("The message", (await post(`/api/v1/messages/${message.id}/redrive`)).state),
  });
}

/** Settles a message of which nobody knows whether it arrived. */
export function resolveMessage(message) {
  return asking("Resolve…", "primary", {
    title: `Resolve message ${message.id}`,
    says: [
      `Nobody knows whether an attempt arrived at ${message.destination}. Ask its receiver for ${message.idempotency_key}, and say here what you found.`,
    ],
    fields: [
      {
        name: "as",
        label: "What happened",
        value: "retry",
        words: [
          ["retry", "It did not arrive: try it again at once"],
          ["published", "It arrived: it ends as published"],
          ["dead", "It did not arrive, and must not any more: it ends as dead"],
        ],
      },
    ],
    command: (values) => `forebay message resolve ${message.id} --as ${values.as}`,
    run: async (values) =>
      isAt("The message", (await post(`/api/v1/messages/${message.id}/resolve`, { as: values.as })).state),
  });
}
