// The transport by server-sent events, for networks that block WebSockets. A stream cannot change its subscription:
// another one replaces it, and the old one ends once the new one has begun.
//
// The open stream is the heartbeat. Activity and typing are sent as requests.

import { asError, RollcallError } from "./error.js";
import { authHeaders, responseError } from "./http.js";
import { sseParser } from "./sse-parser.js";
import { Timer } from "./timer.js";
import { connectionQuery, type End, type Transport, type TransportHandlers, type TransportOptions } from "./transport.js";
import type { ServiceEvent } from "./types.js";

/** The service writes twice per interval of 30 s; a stream silent for this long is dead. */
const SILENCE_MS = 90_000;

/** Wait before a stream that the service could not serve is requested again. */
const RETRY_MS = 5_000;

export class SseTransport implements Transport {
  readonly isSocket = false;
  readonly #options: TransportOptions;
  readonly #handlers: TransportHandlers;
  readonly #end: End = { wasOpen: false };
  readonly #timer = new Timer();
  readonly #retryTimer = new Timer();
  #isOver = false;
  #users: string[] = [];
  #conversations: string[] = [];
  /** One for each open stream, oldest first; the last stream is the current one. */
  readonly #aborts = new Set<AbortController>();
  #wanted = "";

  constructor(options: TransportOptions, handlers: TransportHandlers) {
    this.#options = options;
    this.#handlers = handlers;
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
    const { device, kind } = this.#options;
    void this.#request("POST", "/v1/heartbeat", { device, kind, active: true });
  }

  type(conversation: string, typing: boolean): void {
    void this.#request(typing ? "PUT" : "DELETE", `/v1/typing/${encodeURIComponent(conversation)}`);
  }

  renew(token: string): void {
    this.#options.token = token;
    void this.#open();
  }

  async close(leave: boolean): Promise<void> {
    const { sendRequest, device, watchOnly } = this.#options;
    // The stream first: while it is open it is a heartbeat.
    this.#stop();
    if (leave && !watchOnly) await sendRequest("POST", "/v1/leave", { device, reason: "logout" }).catch(() => {});
  }

  /** Ends all streams, or with `kept` those older than it: a newer one watches what is wanted by now. */
  #stop(kept?: AbortController): void {
    for (const abort of this.#aborts) {
      if (abort === kept) break;
      abort.abort();
    }
    if (!kept) this.#retryTimer.clear();
    this.#timer.clear();
    this.#isOver = !kept;
  }

  async #open(): Promise<void> {
    if (this.#isOver) return;
    const [users, conversations, abort] = [this.#users, this.#conversations, new AbortController()];
    this.#aborts.add(abort);
    try {
      const response = await this.#fetch(users, conversations, abort.signal);
      if (response.ok && response.body) {
        this.#stop(abort);
        this.#options.active = false;
        if (!this.#end.wasOpen) this.#handlers.opened();
        this.#end.wasOpen = true;
        await this.#read(response.body, conversations, abort);
      } else {
        const error = await responseError(response);
        // If `refused` removed something from the subscription, it has requested another stream.
        if (error.status !== 400 && error.status !== 403) this.#end.error = error;
        else if (this.#handlers.refused(error, users, conversations)) return;
        else return this.#retryTimer.set(RETRY_MS, () => this.#open());
      }
    } catch (thrown) {
      this.#end.error = asError(thrown);
    }
    this.#aborts.delete(abort);
    if (!abort.signal.aborted) this.#finish();
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#stop();
    this.#handlers.ended(this.#end);
  }

  #fetch(users: string[], conversations: string[], signal: AbortSignal): Promise<Response> {
    const { access, resume, updateResume, device, token } = this.#options;
    if (this.#end.wasOpen) updateResume();
    const headers = authHeaders(token);
    // A stream has one starting point: it resumes only if the event id is valid for every user.
    if (users.every((user) => resume.users.has(user)) && resume.id) headers["Last-Event-ID"] = resume.id;
    else resume.users.clear();
    // Each id is encoded separately, so that a comma within an id is not a separator.
    const list = (name: string, ids: string[]) =>
      ids.length > 0 ? `&${name}=${ids.map(encodeURIComponent).join(",")}` : "";
    // The service rejects a stream that watches nothing. The device id is not a user, so watching it is harmless.
    const watched = list("users", users) + list("conversations", conversations) || list("users", [device]);
    return access.fetch(`${access.url}/v1/subscribe?${connectionQuery(this.#options)}${watched}`, { headers, signal });
  }

  async #read(body: ReadableStream<Uint8Array>, conversations: string[], abort: AbortController): Promise<void> {
    const [reader, decoder, parse] = [body.getReader(), new TextDecoder(), sseParser()];
    while (!abort.signal.aborted) {
      this.#timer.set(SILENCE_MS, () => this.#finish());
      const { done, value } = await reader.read();
      if (done) return;
      for (const { event, id, data } of parse(decoder.decode(value, { stream: true }))) {
        if (data) this.#receive({ ...(JSON.parse(data) as object), event, id } as ServiceEvent, conversations);
        else if (id) this.#handlers.advanced(id);
      }
    }
  }

  #receive(message: ServiceEvent, conversations: string[]): void {
    const { event, after_ms, code } = message as { event: string; after_ms?: number; code?: number };
    if (event === "reconnect") this.#end.afterMs = after_ms;
    else if (event === "close") this.#end.code = code;
    else if (event === "error") this.#handlers.refused(new RollcallError(message as object));
    else if (message.event === "snapshot") {
      this.#options.resume.users.clear();
      this.#handlers.received({ ...message, conversations });
    } else this.#handlers.received(message);
  }

  /** Sends a request beside the stream, and reports a failure. */
  async #request(method: string, path: string, body?: object): Promise<void> {
    try {
      const { next_beat_ms } = await this.#options.sendRequest<{ next_beat_ms?: number }>(method, path, body);
      if (next_beat_ms) this.#handlers.nextBeat(next_beat_ms);
    } catch (thrown) {
      this.#handlers.refused(asError(thrown));
    }
  }
}
