// One message: its state and the reason, its history, headers and body.

import { cancelMessage, redriveMessage, rescheduleMessage, resolveMessage } from "../actions/messages.js";
import { h } from "../dom.js";
import { generation, plural } from "../format.js";
import { badge, body, facts, heading, headers, idLink, link, section, time, wholeId } from "../parts.js";
import { toneOf } from "../states.js";

export async function message({ id, get }) {
  const path = `/api/v1/messages/${encodeURIComponent(id)}`;
  const [shown, why] = await Promise.all([get(path), get(`${path}/why`)]);
  const waits = ["scheduled", "retry_wait"].includes(shown.state);
  const isUnsettled = shown.uncertain_attempts > 0 && (waits || shown.state === "uncertain");
  return [
    heading("Message", {
      state: badge(shown.state),
      about: wholeId(shown.id),
      actions: [
        isUnsettled || shown.state === "uncertain" ? resolveMessage(shown) : null,
        waits ? rescheduleMessage(shown) : null,
        waits ? cancelMessage(shown) : null,
        shown.state === "dead" ? redriveMessage(shown) : null,
      ],
    }),
    section(
      "Why",
      h("p", { class: "lead" }, why.reason ? [badge(why.reason), " "] : null, why.explanation),
      why.advice ? h("p", { class: "advice" }, why.advice) : null,
    ),
    section("What happened", timeline(shown)),
    section(
      "Message",
      facts([
        ["Lane", link(why.lane, "/lanes", { namespace: shown.namespace, destination: shown.destination })],
        ["Shard", link(String(why.shard), "/shards")],
        ["Adapter", shown.adapter],
        ["Event", idLink(shown.event_id)],
        ["Work item", idLink(shown.work_item_id)],
        ["Idempotency key", h("code", null, shown.idempotency_key)],
        ["Generation", shown.generation],
        ["Attempts", shown.attempt],
        ["Uncertain attempts", shown.uncertain_attempts || null],
        ["Expires", time(shown.expire_at)],
        [
          "Action",
          shown.action ? `${shown.action.name} of ${generation(shown.action)}` : null,
        ],
        ["Handed off as", idLink(shown.action?.work_item)],
      ]),
    ),
    section("Headers", headers(shown.headers, "The message has none: the host adds those of the signature.")),
    section("Body", ...body(shown.body, shown.content_type)),
  ];
}

/** The history of a message; of its attempts, only the last one is recorded. */
function timeline(shown) {
  const waits = ["scheduled", "retry_wait"].includes(shown.state);
  const before =
    shown.attempt > 1
      ? `Of ${plural(shown.attempt - 1, "earlier attempt", "earlier attempts")} only the count is recorded.`
      : null;
  const outcome = shown.error ?? (shown.status ? `It answered ${shown.status}.` : "");
  const steps = [
    {
      at: shown.created_at,
      what: "Emitted",
      more:
        shown.generation > 1
          ? `It was rescheduled or redriven ${plural(shown.generation - 1, "time", "times")} since.`
          : null,
    },
    { at: shown.due_at, what: "Due" },
    shown.admitted_at
      ? {
          at: shown.admitted_at,
          what: `Attempt ${shown.attempt}`,
          more: [before, outcome].filter(Boolean).join(" "),
          tone: shown.error ? "warn" : "busy",
        }
      : null,
    waits && shown.attempt > 0
      ? { at: shown.eligible_at, what: `Attempt ${shown.attempt + 1}, at the earliest`, tone: "info" }
      : null,
    shown.finished_at ? { at: shown.finished_at, what: badge(shown.state), tone: toneOf(shown.state) } : null,
  ].filter(Boolean);
  const step = ({ at, what, more, tone }) =>
    h(
      "li",
      { class: `step tone-${tone ?? "quiet"}` },
      h("div", { class: "what" }, what),
      time(at),
      more ? h("p", null, more) : null,
    );
  return h("ol", { class: "timeline" }, steps.map(step));
}
