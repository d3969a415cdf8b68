// The console: shows the view that the address names, and keeps it fresh.

import { get, readiness } from "./api.js";
import { whenDone } from "./dialog.js";
import { h, morph } from "./dom.js";
import { Frame } from "./frame.js";
import { emptyState, heading } from "./parts.js";
import { Refresher } from "./refresh.js";
import { currentRoute } from "./routes.js";
import { applyTheme, dropToken, keepToken, mustSignIn } from "./session.js";

applyTheme();
if (mustSignIn()) askForToken();
else begin();

function begin() {
  const frame = new Frame({
    onRefresh: () => refresher.now(),
    onPause: () => (refresher.isPaused = !refresher.isPaused),
  });
  let shown = null;
  const refresher = new Refresher(
    async (signal) => {
      const route = currentRoute();
      const address = location.hash;
      const asked = readiness(signal);
      const [view, ready] = await Promise.all([draw(route, signal, asked), asked]);
      show(frame, view, address !== shown);
      shown = address;
      frame.goTo(route?.place, route?.title ?? "No such view");
      frame.show(ready);
    },
    (error, pause) => {
      if (error.status === 401) return askForToken(error.message);
      if (shown !== location.hash) show(frame, [heading("This cannot be shown"), emptyState(error.message)], true);
      shown = location.hash;
      frame.fail(error, pause);
    },
  );
  whenDone(() => refresher.now());
  window.addEventListener("hashchange", () => {
    frame.main.setAttribute("aria-busy", "true");
    refresher.now();
  });
  frame.main.append(emptyState("Asking the host…"));
  refresher.now();
}

/** Renders a view from the host's answers. */
async function draw(route, signal, ready) {
  if (!route) return [heading("No such view"), emptyState("Choose one from the navigation.")];
  return route.view({ id: route.id, path: route.path, query: route.query, ready, get: (path) => get(path, signal) });
}

/** Puts a view on the page: the same view is updated in place, another one replaces it and focuses its heading. */
function show(frame, view, isOther) {
  frame.main.removeAttribute("aria-busy");
  const wanted = h("main", { id: "main", tabindex: "-1" }, view);
  if (!isOther) return morph(frame.main, wanted);
  const hadView = frame.main.querySelector("h1") !== null;
  frame.main.replaceChildren(...wanted.childNodes);
  if (!hadView) return;
  window.scrollTo(0, 0);
  frame.main.querySelector("h1")?.focus({ preventScroll: true });
}

/** Asks for the token instead of any view; `said` is why the previous token was refused. */
function askForToken(said) {
  document.querySelector("dialog")?.remove();
  const input = h("input", {
    type: "password",
    name: "token",
    required: true,
    autocomplete: "current-password",
    "aria-describedby": "token-hint",
  });
  const submit = async (event) => {
    event.preventDefault();
    keepToken(input.value.trim());
    try {
      await get("/api/v1/stats");
    } catch (error) {
      dropToken();
      return askForToken(error.message);
    }
    begin();
  };
  document.title = "Sign in · Forebay";
  document.body.replaceChildren(
    h(
      "main",
      { class: "sign-in" },
      h(
        "form",
        { onsubmit: submit, class: "panel" },
        h("h1", null, "Forebay"),
        h("label", { class: "field" }, h("span", null, "Admin token"), input),
        h("p", { id: "token-hint", class: "about" }, "The host's admin.token. This tab keeps it until it is closed."),
        said ? h("div", { class: "notice tone-bad", role: "alert" }, said) : null,
        h("button", { type: "submit", class: "primary" }, "Sign in"),
      ),
    ),
  );
  input.focus();
}
