// Dialogs that ask before an action and show its result.

import { ApiError } from "./api.js";
import { h } from "./dom.js";

let afterwards = () => {};

/** Called after a dialog that ran its action is closed. */
export function whenDone(callback) {
  afterwards = callback;
}

/**
 * Asks for confirmation, then runs the action.
 *
 * - `title` and `says`: the action and its consequences.
 * - `command`: the same action on the command line.
 * - `fields`: `{ name, label, value, words, hint }`; with words it is a choice among `[word, meaning]`.
 * - `label` and `kind`: the button that confirms.
 * - `run(values)`: runs the action, and returns its result for people.
 */
export function confirm({ title, says, command, fields = [], label, kind = "primary", run }) {
  const outcome = h("div", { class: "outcome", role: "status", "aria-live": "polite" });
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const act = h("button", { type: "submit", class: kind }, label);
  const shown = typeof command === "function" ? h("code", null) : h("code", null, command);
  const values = () => Object.fromEntries(new FormData(form));
  const showCommand = () => {
    if (typeof command === "function") shown.textContent = command(values());
  };
  let isBusy = false;
  let isDone = false;
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = act.disabled = cancel.disabled = true;
    outcome.replaceChildren(h("p", { class: "doing" }, "Asking the host…"));
    try {
      const said = await run(values());
      isDone = true;
      outcome.replaceChildren(h("div", { class: "notice tone-good" }, said));
      act.remove();
      cancel.textContent = "Close";
      for (const field of form.querySelectorAll("input, select")) field.disabled = true;
    } catch (error) {
      if (!(error instanceof ApiError)) console.error(error);
      outcome.replaceChildren(refusal(error));
    }
    isBusy = act.disabled = cancel.disabled = false;
    cancel.focus();
  };
  const form = h(
    "form",
    { onsubmit: submit, oninput: showCommand },
    h("h2", { id: "dialog-title" }, title),
    says.map((text) => h("p", null, text)),
    fields.map(fieldOf),
    command ? h("p", { class: "command" }, h("span", null, "The same in a terminal"), shown) : null,
    outcome,
    h("div", { class: "buttons" }, cancel, act),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  dialog.addEventListener("cancel", (event) => {
    if (isBusy) event.preventDefault();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (isDone) afterwards();
  });
  document.body.append(dialog);
  showCommand();
  dialog.showModal();
  (form.querySelector("input, select") ?? cancel).focus();
}

function fieldOf({ name, label, value = "", words, hint }) {
  const described = hint ? `hint-${name}` : null;
  const control = words
    ? h(
        "select",
        { name, "aria-describedby": described },
        words.map(([word, meaning]) => h("option", { value: word, selected: word === value }, meaning)),
      )
    : h("input", { name, value, "aria-describedby": described, spellcheck: "false", autocomplete: "off" });
  return h(
    "label",
    { class: "field" },
    h("span", null, label),
    control,
    hint ? h("small", { id: described }, hint) : null,
  );
}

/** An error with the message of the host. */
function refusal(error) {
  const status = error instanceof ApiError && error.status ? ` (${error.status} ${error.code})` : "";
  return h(
    "div",
    { class: "notice tone-bad", role: "alert" },
    h("strong", null, `It was not done${status}`),
    h("p", null, error.message),
  );
}
