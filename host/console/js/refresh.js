// Refreshes: some time after the last answer, one at a time, and only while the page is visible.

import { ApiError } from "./api.js";

/** From an answer to the next refresh. */
const PAUSE_MS = 4_000;
/** After errors, the pause doubles up to this. */
const PAUSE_MAX_MS = 30_000;

/** Refreshes repeatedly. */
export class Refresher {
  #work;
  #failed;
  #controller = null;
  #timer = null;
  #failures = 0;
  #isPaused = false;

  /** `work(signal)` refreshes; `failed(error, again)` shows the error and the time of the next refresh. */
  constructor(work, failed) {
    this.#work = work;
    this.#failed = failed;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.now()));
  }

  /** Whether automatic refreshes are off. */
  get isPaused() {
    return this.#isPaused;
  }

  /** Turns automatic refreshes on or off. */
  set isPaused(value) {
    this.#isPaused = value;
    if (value) this.stop();
    else this.now();
  }

  /** Aborts the running refresh. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#controller?.abort();
    this.#controller = null;
  }

  /** Refreshes now, and aborts a running refresh. */
  async now() {
    this.stop();
    const controller = (this.#controller = new AbortController());
    let pause = PAUSE_MS;
    try {
      await this.#work(controller.signal);
      this.#failures = 0;
    } catch (error) {
      if (controller.signal.aborted) return;
      this.#failures += 1;
      pause = Math.min(PAUSE_MS * 2 ** (this.#failures - 1), PAUSE_MAX_MS);
      if (!(error instanceof ApiError)) console.error(error);
      this.#failed(error, pause);
      if (error.status === 401) return;
    }
    if (controller.signal.aborted || this.#isPaused || document.hidden) return;
    this.#timer = setTimeout(() => this.now(), pause);
  }
}
