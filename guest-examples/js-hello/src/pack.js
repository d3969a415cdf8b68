// A small connector: it greets the subject of an event.
import { connector, ignore, json, proceed } from "./forebay/connector.js";

export const flow = connector({
  prepare(event) {
    const { kind, subject } = json(event);
    if (kind !== "greeting") return ignore(`\`${kind}\` is not handled`);
    // The state for `run`.
    return proceed(subject);
  },

  run(event, subject) {
    // To send a message: `messages: [message("warehouse", body)]`, and `destinations` in pack.toml.
    return { note: `hello, ${subject}` };
  },
});
