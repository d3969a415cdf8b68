// Parts of views.

import { h } from "./dom.js";
import { absolute, bytes, prettyJson, relative, short } from "./format.js";
import { toneOf, wordsOf } from "./states.js";

/** A state as a word with a tone. */
export function badge(word, tone = toneOf(word)) {
  return h("span", { class: `badge tone-${tone}` }, h("span", { class: "dot", "aria-hidden": "true" }), wordsOf(word));
}

/** A time: absolute, and relative to now. */
export function time(value) {
  if (!value) return null;
  return h(
    "time",
    { datetime: value, title: value, class: "when" },
    h("span", { class: "absolute" }, absolute(value)),
    h("span", { class: "relative" }, relative(value)),
  );
}

const PLACES = { evt: "events", wi: "work-items", msg: "messages" };

/** The address of the view of an id; null if its kind has no view. */
export function placeOf(id) {
  const place = PLACES[id.split("_")[0]];
  return place ? `#/${place}/${encodeURIComponent(id)}` : null;
}

/** A link to a thing, with its id shortened. */
export function idLink(id) {
  if (!id) return null;
  return h("a", { href: placeOf(id), class: "id", title: id }, short(id));
}

/** A link to a view with a filter. */
export function link(text, path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value);
  return h("a", { href: given.length ? `#${path}?${new URLSearchParams(given)}` : `#${path}` }, text);
}

/** A whole id, with a button that copies it where the browser lets it. */
export function wholeId(id) {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(id);
    button.textContent = "Copied";
  };
  return h(
    "span",
    { class: "whole-id" },
    h("code", null, id),
    navigator.clipboard ? h("button", { type: "button", class: "small", onclick: copy }, "Copy") : null,
  );
}

/** The head of a view: its title, state, description and actions. */
export function heading(title, { state, about, actions } = {}) {
  const buttons = (actions ?? []).filter(Boolean);
  return h(
    "header",
    { class: "heading" },
    h(
      "div",
      null,
      h("h1", { tabindex: "-1" }, title, state ? [" ", state] : null),
      about ? h("p", { class: "about" }, about) : null,
    ),
    buttons.length ? h("div", { class: "actions" }, buttons) : null,
  );
}

/** A part of a view under a heading of its own. */
export function section(title, ...children) {
  return h("section", { class: "panel", "data-key": `section ${title}` }, h("h2", null, title), ...children);
}

/** Names and values; those without a value are left out. */
export function facts(entries) {
  const known = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    known.map(([name, value]) => h("div", { "data-key": name }, h("dt", null, name), h("dd", null, value))),
  );
}

/**
 * A table that becomes a list of cards where there is no room. `columns` are `[head, cell, class]`; `keyOf` tells rows
 * apart; `empty` is said instead of nothing.
 */
export function table(label, columns, rows, keyOf, empty) {
  if (rows.length === 0) return emptyState(empty);
  const head = columns.map(([name, , kind]) => h("th", { scope: "col", class: kind ?? null }, name));
  const body = rows.map((row) =>
    h(
      "tr",
      { "data-key": keyOf(row) },
      columns.map(([name, cell, kind]) =>
        h("td", { "data-label": name, class: kind ?? null }, cell(row) ?? h("span", { class: "none" }, "–")),
      ),
    ),
  );
  return h(
    "div",
    { class: "table-frame" },
    h("table", { "aria-label": label }, h("thead", null, h("tr", null, head)), h("tbody", null, body)),
  );
}

/** The text in place of an empty table. */
export function emptyState(text) {
  return h("p", { class: "empty" }, text);
}

/** A notice. */
export function notice(tone, ...children) {
  return h("div", { class: `notice tone-${tone}`, role: tone === "bad" ? "alert" : null }, ...children);
}

/** A button: `plain`, `primary` or `danger`. */
export function button(text, kind, onclick) {
  return h("button", { type: "button", class: kind, onclick }, text);
}

/** The headers of a request, without the values of credentials. */
export function headers(list, empty) {
  const value = (header) =>
    header.value === null ? h("span", { class: "none" }, "not shown: a credential") : h("code", null, header.value);
  return table(
    "Headers",
    [
      ["Name", (header) => h("code", null, header.name), "fit"],
      ["Value", value, "wide"],
    ],
    list,
    (header) => `${header.name} ${header.value}`,
    empty,
  );
}

/** A body: as indented JSON if possible, and as it came. */
export function body(content, type) {
  const whole = content.truncated ? "the beginning is shown" : null;
  const about = [type, bytes(content.bytes), content.encoding === "base64" ? "in base64" : null, whole]
    .filter(Boolean)
    .join(", ");
  const pretty = content.encoding === "utf-8" && !content.truncated ? prettyJson(content.data) : null;
  return [
    h("p", { class: "about" }, about),
    content.bytes === 0
      ? emptyState("The body is empty.")
      : h("pre", { tabindex: "0", "aria-label": "Body" }, pretty ?? content.data),
    pretty === null
      ? null
      : h("details", null, h("summary", null, "As it came"), h("pre", { tabindex: "0" }, content.data)),
  ];
}

/**
 * The filters of a listing, kept in the address. `fields` are `{ name, label, words }`; without words it is a text.
 */
export function filters(path, query, fields) {
  const go = (form) => {
    const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    location.hash = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  };
  const submit = (event) => {
    event.preventDefault();
    go(event.currentTarget);
  };
  const input = ({ name, label, words }) => {
    const value = query.get(name) ?? "";
    if (!words)
      return h("input", {
        name,
        value,
        placeholder: "any",
        spellcheck: "false",
        autocomplete: "off",
        "aria-label": label,
      });
    const option = (word) => h("option", { value: word, selected: word === value }, word ? wordsOf(word) : "any");
    return h(
      "select",
      { name, "aria-label": label, onchange: (event) => go(event.currentTarget.form) },
      ["", ...words].map(option),
    );
  };
  const isFiltered = fields.some(({ name }) => query.get(name));
  return h(
    "form",
    // Another address is another form: it does not keep the text of the previous one.
    { class: "filters", onsubmit: submit, role: "search", "data-key": `filters ${query}` },
    fields.map((field) => h("label", null, h("span", null, field.label), input(field))),
    h("button", { type: "submit" }, "Filter"),
    isFiltered ? h("a", { href: `#${path}`, class: "button" }, "Clear") : null,
  );
}

/** Links to the next page of a listing, and to its beginning. */
export function pager(path, query, next) {
  const at = (after) => {
    const parameters = new URLSearchParams(query);
    parameters.delete("after");
    if (after) parameters.set("after", after);
    return parameters.size ? `#${path}?${parameters}` : `#${path}`;
  };
  const isFirst = !query.get("after");
  if (isFirst && !next) return null;
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    isFirst ? null : h("a", { href: at(null), class: "button" }, "Newest"),
    next
      ? h("a", { href: at(next), class: "button" }, "Older")
      : h("span", { class: "none" }, "This is the last page."),
  );
}
