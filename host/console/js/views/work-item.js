// One work item: its state and the reason, its failure and its reads.

import { replayWorkItem, skipWorkItem } from "../actions/work.js";
import { h } from "../dom.js";
import { generation } from "../format.js";
import { badge, body, emptyState, facts, heading, idLink, link, notice, section, time, wholeId } from "../parts.js";

/** Explanations of states. */
const MEANINGS = {
  ready: "The next claim with room takes it.",
  delayed: "Its last run failed; it runs again when its delay is over.",
  blocked: "Another work item is before it in its lane.",
  processing: "A host has claimed it and runs it.",
};

export async function workItem({ id, get }) {
  const item = await get(`/api/v1/work-items/${encodeURIComponent(id)}`);
  const hasEnded = ["done", "dead"].includes(item.state);
  return [
    heading("Work item", {
      state: badge(item.state),
      about: wholeId(item.id),
      actions: [
        hasEnded && !item.replayed_at ? replayWorkItem(item) : null,
        item.state === "dead" ? skipWorkItem(item) : null,
      ],
    }),
    MEANINGS[item.state] ? h("p", { class: "lead" }, MEANINGS[item.state]) : null,
    item.failure ? failure(item) : null,
    section(
      "Execution",
      facts([
        ["Event", idLink(item.event_id)],
        ["Pack", link(generation(item), `/queue/${item.pack}`)],
        ["Namespace", item.namespace],
        ["Type", item.work_type.replaceAll("_", " ")],
        ["Queue class", item.queue_class],
        ["Source key", item.source_key === null ? null : h("code", null, item.source_key)],
        ["Projection", item.projection],
        ["Applies the action", idLink(item.action)],
        ["Replays", idLink(item.replay_of)],
        ["Replayed", time(item.replayed_at)],
        ["Attempts", item.attempt],
        ["Failures", item.failures],
        ["Created", time(item.created_at)],
        ["Runs after", hasEnded ? null : time(item.run_after)],
        ["Leased until", time(item.lease_until)],
        ["Ended", time(item.finished_at)],
        ["Ignored by its flow", item.ignored ? "yes" : null],
        ["Note", item.note],
        ["Output SHA-256", item.output_sha256 === null ? null : h("code", null, item.output_sha256)],
      ]),
    ),
    item.reads ? section("Reads", reads(item.reads)) : null,
  ];
}

function failure({ failure, state }) {
  const about = state === "dead" ? "It was given up" : "Its last run failed";
  return notice(
    state === "dead" ? "bad" : "warn",
    h("strong", null, `${about}: ${failure.class.replaceAll("_", " ")}`),
    h("pre", null, failure.message),
  );
}

function reads({ count, kept, records }) {
  if (!kept) return emptyState(`${count} records were read, and were too large to keep.`);
  return records.map((record) =>
    h(
      "details",
      { "data-key": `${record.reader} ${record.key}` },
      h(
        "summary",
        null,
        h("code", null, `${record.reader}: ${record.key}`),
        record.value === null ? " (no such record)" : "",
      ),
      record.value === null ? null : body(record.value, null),
    ),
  );
}
