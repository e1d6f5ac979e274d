// The line by server-sent events, for networks in which no WebSocket gets through. A stream cannot change whom it
// watches: another one takes its place, and the first goes when that has begun.
//
// The stream is the sign of life. That the person is active, and that they type, is said by calls.

import { asError, RollcallError } from "./error.js";
import { identity, refusal } from "./http.js";
import { framer } from "./sse-parser.js";
import { Timer } from "./timer.js";
import type { ServiceEvent } from "./types.js";
import { query, type Ears, type End, type Opening, type Wire } from "./transport.js";

/** The service says something twice in each of its intervals, which are 30 s; after so much silence it is gone. */
const SILENCE_MS = 90_000;

/** Before what the service could not do is asked for again. */
const STALL_MS = 5_000;

/** Opens streams, one after the other. */
export class EventsWire implements Wire {
  readonly isSocket = false;
  readonly #opening: Opening;
  readonly #ears: Ears;
  readonly #end: End = { wasOpen: false };
  readonly #timer = new Timer();
  readonly #stall = new Timer();
  #isOver = false;
  #users: string[] = [];
  #conversations: string[] = [];
  /** What ends each stream that has not ended; the last is the one that counts. */
  readonly #endings = new Set<AbortController>();
  #wanted = "";

  constructor(opening: Opening, ears: Ears) {
    this.#opening = opening;
    this.#ears = ears;
  }

  watch(users: string[], conversations: string[]): void {
    const wanted = JSON.stringify([users, conversations]);
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    this.#users = users;
    this.#conversations = conversations;
    queueMicrotask(() => wanted === this.#wanted && this.#open());
  }

  beat(): void {
    const { device, kind } = this.#opening;
    void this.#say("POST", "/v1/heartbeat", { device, kind, active: true });
  }

  type(conversation: string, typing: boolean): void {
    void this.#say(typing ? "PUT" : "DELETE", `/v1/typing/${encodeURIComponent(conversation)}`);
  }

  renew(token: string): void {
    this.#opening.token = token;
    void this.#open();
  }

  async close(leave: boolean): Promise<void> {
    const { ask, device, watchOnly } = this.#opening;
    // First the stream: it would be one more sign of life.
    this.#stop();
    if (leave && !watchOnly) await ask("POST", "/v1/leave", { device, reason: "logout" }).catch(() => {});
  }

  /** Ends all streams; `kept`: all that are older than this one, as a newer one watches what is wanted by now. */
  #stop(kept?: AbortController): void {
    for (const ending of this.#endings) {
      if (ending === kept) break;
      ending.abort();
    }
    if (!kept) this.#stall.clear();
    this.#timer.clear();
    this.#isOver = !kept;
  }

  async #open(): Promise<void> {
    if (this.#isOver) return;
    const [users, conversations, ending] = [this.#users, this.#conversations, new AbortController()];
    this.#endings.add(ending);
    try {
      const answer = await this.#fetch(users, conversations, ending.signal);
      if (answer.ok && answer.body) {
        this.#stop(ending);
        this.#opening.active = false;
        if (!this.#end.wasOpen) this.#ears.opened();
        this.#end.wasOpen = true;
        await this.#read(answer.body, conversations, ending);
      } else {
        const error = await refusal(answer);
        // If it is known what to leave out, another stream is asked for by now.
        if (error.status !== 400 && error.status !== 403) this.#end.error = error;
        else if (this.#ears.refused(error, users, conversations)) return;
        else return this.#stall.set(STALL_MS, () => this.#open());
      }
    } catch (thrown) {
      this.#end.error = asError(thrown);
    }
    this.#endings.delete(ending);
    if (!ending.signal.aborted) this.#finish();
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#stop();
    this.#ears.ended(this.#end);
  }

  #fetch(users: string[], conversations: string[], signal: AbortSignal): Promise<Response> {
    const { access, resume, recall, device, token } = this.#opening;
    if (this.#end.wasOpen) recall();
    const headers = identity(token);
    // A stranger among them, and all are told of anew: a stream has one beginning.
    if (users.every((user) => resume.users.has(user)) && resume.id) headers["Last-Event-ID"] = resume.id;
    else resume.users.clear();
    // Each id is encoded on its own, so that a comma within one is no separator.
    const list = (name: string, ids: string[]) =>
      ids.length > 0 ? `&${name}=${ids.map(encodeURIComponent).join(",")}` : "";
    // A stream that watches nothing is refused: then one watches what one's device is called, and that is nobody.
    const watched = list("users", users) + list("conversations", conversations) || list("users", [device]);
    return access.fetch(`${access.url}/v1/subscribe?${query(this.#opening)}${watched}`, { headers, signal });
  }

  async #read(body: ReadableStream<Uint8Array>, conversations: string[], ending: AbortController): Promise<void> {
    const [reader, decoder, frames] = [body.getReader(), new TextDecoder(), framer()];
    while (!ending.signal.aborted) {
      this.#timer.set(SILENCE_MS, () => this.#finish());
      const { done, value } = await reader.read();
      if (done) return;
      for (const { event, id, data } of frames(decoder.decode(value, { stream: true }))) {
        if (data) this.#receive({ ...(JSON.parse(data) as object), event, id } as ServiceEvent, conversations);
        else if (id) this.#ears.passed(id);
      }
    }
  }

  #receive(said: ServiceEvent, conversations: string[]): void {
    const { event, after_ms, code } = said as { event: string; after_ms?: number; code?: number };
    if (event === "reconnect") this.#end.afterMs = after_ms;
    else if (event === "close") this.#end.code = code;
    else if (event === "error") this.#ears.refused(new RollcallError(said as object));
    else if (said.event === "snapshot") {
      this.#opening.resume.users.clear();
      this.#ears.heard({ ...said, conversations });
    } else this.#ears.heard(said);
  }

  /** What is said beside the stream; that it failed is told. */
  async #say(method: string, path: string, body?: object): Promise<void> {
    try {
      const { next_beat_ms } = await this.#opening.ask<{ next_beat_ms?: number }>(method, path, body);
      if (next_beat_ms) this.#ears.nextBeat(next_beat_ms);
    } catch (thrown) {
      this.#ears.refused(asError(thrown));
    }
  }
}
