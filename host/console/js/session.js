// State of the browser: the token until the tab is closed, and the theme for good.

const TOKEN = "forebay.token";
const THEME = "forebay.theme";
const THEMES = ["auto", "light", "dark"];

/** The bearer token of this tab; null if none was given. */
export function token() {
  return sessionStorage.getItem(TOKEN);
}

/** Remembers the token until the tab is closed. */
export function keepToken(value) {
  sessionStorage.setItem(TOKEN, value);
}

/** Forgets the token. */
export function dropToken() {
  sessionStorage.removeItem(TOKEN);
}

/** Whether the user must sign in first. */
export function mustSignIn() {
  return asksForToken() && token() === null;
}

/** The host's version. */
export function version() {
  return meta("forebay-version");
}

function asksForToken() {
  return meta("forebay-token") === "asked";
}

function meta(name) {
  return document.querySelector(`meta[name="${name}"]`)?.content ?? "";
}

/** Whether the user can sign out. */
export function isSignedIn() {
  return asksForToken() && token() !== null;
}

/** `auto`, `light` or `dark`. */
export function theme() {
  const kept = localStorage.getItem(THEME);
  return THEMES.includes(kept) ? kept : "auto";
}

/** Changes to the next theme. */
export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  localStorage.setItem(THEME, next);
  applyTheme();
  return next;
}

/** Applies the theme to the page. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}
