// A service that a test plays itself, by a clock of its own: for what takes minutes, and for what a host would not do
// when a test wants it.

import type { Options, WebSocketClass } from "../src/index.js";

type Message = { op: string; ref?: number; token?: string; users?: string[]; conversations?: string[] };

/** Answers what a client says. */
export class Service {
  /** Lets no socket through. */
  isBlocked = false;
  /** Answers nothing at all. */
  isAway = false;
  /** Refuses these conversations. */
  refuses: string[] = [];
  /** Sockets that were tried. */
  sockets = 0;
  /** Streams that were opened. */
  streams = 0;
  readonly said: Message[] = [];
  #endStream = () => {};

  /** How to connect to it. */
  get options(): Options {
    const answer: typeof fetch = (url) => this.#answer(String(url));
    return { url: "http://service", as: "alice", WebSocket: this.#socketClass(), fetch: answer };
  }

  /** Ends the stream, as a proxy does that lets none last. */
  cutStream(): void {
    this.#endStream();
  }

  #socketClass(): WebSocketClass {
    const service = this;
    return class {
      onopen: (() => void) | null = null;
      onmessage: ((event: { data: string }) => void) | null = null;
      onclose: ((event: { code: number }) => void) | null = null;
      onerror = null;

      constructor() {
        service.sockets++;
        const isOpen = !service.isBlocked && !service.isAway;
        queueMicrotask(() => (isOpen ? this.onopen?.() : this.onclose?.({ code: 1006 })));
      }

      send(text: string): void {
        const message = JSON.parse(text) as Message;
        service.said.push(message);
        if (message.op === "leave") return this.close();
        const data = JSON.stringify({ ...service.#obey(message), ref: message.ref });
        queueMicrotask(() => this.onmessage?.({ data }));
      }

      close(): void {
        queueMicrotask(() => this.onclose?.({ code: 1000 }));
      }
    } as WebSocketClass;
  }

  #obey({ op, conversations = [] }: Message): object {
    const place = conversations.findIndex((one) => this.refuses.includes(one));
    if (op !== "watch") return { event: "done" };
    if (place >= 0) return { event: "error", status: 403, title: "Not allowed", field: `conversations[${place}]` };
    return { event: "snapshot", presences: [], typing: [], resumed: false };
  }

  async #answer(url: string): Promise<Response> {
    if (this.isAway) throw new TypeError("nobody answers");
    if (!url.includes("/v1/subscribe")) return Response.json({ presences: [] });
    this.streams++;
    const body = new ReadableStream({ start: (stream) => void (this.#endStream = () => stream.close()) });
    return new Response(body);
  }
}
