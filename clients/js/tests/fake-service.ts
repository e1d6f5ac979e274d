// A fake service for tests with a fake clock, and for behaviour that a real host does not show on demand.

import type { Options, WebSocketClass } from "../src/index.js";

type Message = { op: string; ref?: number; token?: string; users?: string[]; conversations?: string[] };

/** Answers a client's messages and requests. */
export class FakeService {
  /** Fails every socket. */
  isBlocked = false;
  /** Answers nothing. */
  isAway = false;
  /** Refuses these conversations. */
  refuses: string[] = [];
  /** Sockets that were attempted. */
  sockets = 0;
  /** Streams that were opened. */
  streams = 0;
  readonly received: Message[] = [];
  #endStream = () => {};

  /** Options that connect a client to it. */
  get options(): Options {
    const answer: typeof fetch = (url) => this.#answerRequest(String(url));
    return { url: "http://service", as: "alice", WebSocket: this.#socketClass(), fetch: answer };
  }

  /** Ends the stream, as a proxy with a time limit does. */
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
        service.received.push(message);
        if (message.op === "leave") return this.close();
        const data = JSON.stringify({ ...service.#answerMessage(message), ref: message.ref });
        queueMicrotask(() => this.onmessage?.({ data }));
      }

      close(): void {
        queueMicrotask(() => this.onclose?.({ code: 1000 }));
      }
    } as WebSocketClass;
  }

  #answerMessage({ op, conversations = [] }: Message): object {
    const place = conversations.findIndex((one) => this.refuses.includes(one));
    if (op !== "watch") return { event: "done" };
    if (place >= 0) return { event: "error", status: 403, title: "Not allowed", field: `conversations[${place}]` };
    return { event: "snapshot", presences: [], typing: [], resumed: false };
  }

  async #answerRequest(url: string): Promise<Response> {
    if (this.isAway) throw new TypeError("no answer");
    if (!url.includes("/v1/subscribe")) return Response.json({ presences: [] });
    this.streams++;
    const body = new ReadableStream({ start: (stream) => void (this.#endStream = () => stream.close()) });
    return new Response(body);
  }
}
