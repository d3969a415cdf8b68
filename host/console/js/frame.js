// The frame around every view: navigation, the state of the host, and the search for ids.

import { h } from "./dom.js";
import { placeOf } from "./parts.js";
import { PLACES } from "./routes.js";
import { dropToken, isSignedIn, nextTheme, theme, version } from "./session.js";

/** The parts of the page that change. */
export class Frame {
  /** The place of views. */
  main = h("main", { id: "main", tabindex: "-1" });
  #trouble = h("div", { class: "trouble", role: "status", "aria-live": "polite" });
  #ready = h("a", { href: "#/", class: "badge tone-quiet readiness" }, "…");
  #updated = h("span", { class: "updated" });
  #pause = h("button", { type: "button", class: "small" }, "Pause");
  #places = new Map();

  /** `onRefresh` refreshes at once; `onPause` turns automatic refreshes on or off, and returns whether they are off. */
  constructor({ onRefresh, onPause }) {
    this.#pause.onclick = () => {
      const isPaused = onPause();
      this.#pause.textContent = isPaused ? "Resume" : "Pause";
      this.#pause.setAttribute("aria-pressed", String(isPaused));
    };
    const skip = h("a", { href: "#main", class: "skip", onclick: (event) => this.#skip(event) }, "Skip to the content");
    const refresh = h(
      "button",
      { type: "button", class: "small", onclick: onRefresh, title: "Refresh (r)" },
      "Refresh",
    );
    document.body.replaceChildren(
      skip,
      h(
        "header",
        { class: "bar-top" },
        h("a", { href: "#/", class: "brand" }, mark(), "Forebay"),
        this.#ready,
        search(),
        h("div", { class: "live" }, this.#updated, this.#pause, refresh),
      ),
      h(
        "nav",
        { class: "places", "aria-label": "Views" },
        PLACES.map((place) => this.#link(place)),
        footer(),
      ),
      h("div", { class: "content" }, this.#trouble, this.main),
    );
    document.addEventListener("keydown", (event) => onKey(event, onRefresh));
  }

  /** Marks the present place in the navigation. */
  goTo(place, title) {
    document.title = `${title} · Forebay`;
    for (const [path, anchor] of this.#places) {
      if (path !== place) anchor.removeAttribute("aria-current");
      else if (!anchor.hasAttribute("aria-current")) {
        anchor.setAttribute("aria-current", "page");
        anchor.scrollIntoView({ block: "nearest", inline: "center" });
      }
    }
  }

  /** Shows whether the host is ready, and the time of the last answer. */
  show(readiness) {
    this.#ready.className = `badge readiness tone-${readiness.ready ? "good" : "bad"}`;
    this.#ready.replaceChildren(
      h("span", { class: "dot", "aria-hidden": "true" }),
      readiness.ready ? "ready" : "not ready",
    );
    this.#updated.textContent = `${new Date().toISOString().slice(11, 19)} UTC`;
    this.#trouble.replaceChildren();
  }

  /** Shows that the view may be out of date, and why. */
  fail(error, pause) {
    const again =
      error.status === 404 || error.status === 400
        ? ""
        : ` What is shown is from before. It is asked again in ${Math.round(pause / 1_000)} s.`;
    this.#trouble.replaceChildren(h("div", { class: "notice tone-bad" }, `${error.message}${again}`));
    if (error.status === 0) {
      this.#ready.className = "badge readiness tone-bad";
      this.#ready.replaceChildren(h("span", { class: "dot", "aria-hidden": "true" }), "no answer");
    }
  }

  #link({ path, name }) {
    const anchor = h("a", { href: `#${path}` }, name);
    this.#places.set(path, anchor);
    return anchor;
  }

  #skip(event) {
    // The address behind `#` is the view's.
    event.preventDefault();
    this.main.focus();
  }
}

function mark() {
  const wave = "c3.3 0 3.3 3 6.7 3s3.3-3 6.6-3 3.4 3 6.7 3";
  return h(
    "svg",
    { viewBox: "0 0 32 32", class: "mark", "aria-hidden": "true" },
    h("path", { d: `M2 11${wave}M2 19${wave}` }),
  );
}

/** Opens the view of an id. */
function search() {
  const input = h("input", {
    type: "search",
    name: "id",
    placeholder: "evt_…, wi_… or msg_…",
    "aria-label": "Go to an id",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => input.setCustomValidity(""),
  });
  const submit = (event) => {
    event.preventDefault();
    const place = placeOf(input.value.trim());
    input.setCustomValidity(place ? "" : "An id begins with evt_, wi_ or msg_.");
    if (!place) return input.reportValidity();
    location.hash = place;
    input.value = "";
    input.blur();
  };
  return h(
    "form",
    { class: "search", role: "search", onsubmit: submit },
    input,
    h("kbd", { "aria-hidden": "true" }, "/"),
  );
}

function footer() {
  const label = () => `Theme: ${theme()}`;
  const change = (event) => {
    nextTheme();
    event.currentTarget.textContent = label();
  };
  const leave = () => {
    dropToken();
    location.reload();
  };
  return h(
    "div",
    { class: "places-foot" },
    h("button", { type: "button", class: "small", onclick: change }, label()),
    isSignedIn() ? h("button", { type: "button", class: "small", onclick: leave }, "Sign out") : null,
    h("span", { class: "version" }, `Forebay ${version()}`),
  );
}

/** `/` focuses the field for ids, `r` refreshes. */
function onKey(event, onRefresh) {
  const isWriting = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (isWriting || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector(".search input").focus();
  } else if (event.key === "r") {
    onRefresh();
  }
}
