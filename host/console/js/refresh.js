// When the host is asked again: a while after its last answer, never twice at once, not while nobody looks.

import { ApiError } from "./api.js";

/** From an answer to the next question. */
const PAUSE_MS = 4_000;
/** After errors, twice as long each time, up to this. */
const PAUSE_MAX_MS = 30_000;

/** Asks again and again. */
export class Refresher {
  #work;
  #failed;
  #controller = null;
  #timer = null;
  #failures = 0;
  #isPaused = false;

  /** `work(signal)` asks and shows; `failed(error, again)` says what went wrong and when it is asked again. */
  constructor(work, failed) {
    this.#work = work;
    this.#failed = failed;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.now()));
  }

  /** Whether it only asks when it is told to. */
  get isPaused() {
    return this.#isPaused;
  }

  /** Goes on, or waits to be told to. */
  set isPaused(value) {
    this.#isPaused = value;
    if (value) this.stop();
    else this.now();
  }

  /** Ends what is being asked. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#controller?.abort();
    this.#controller = null;
  }

  /** Asks now; what was being asked is of no more use. */
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
