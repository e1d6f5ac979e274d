// A TCP proxy between a client and a host that a test can cut, and that can block WebSockets.

import { createServer, connect, type Server, type Socket } from "node:net";
import { once } from "node:events";

export class Proxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Rejects upgrades, as some middleboxes do. */
  blocksSockets = false;
  /** Accepts no connection. */
  isCut = false;
  /** How many upgrade requests arrived. */
  upgrades = 0;

  private constructor(port: number) {
    this.#server = createServer((client) => this.#accept(client, port));
  }

  static async start(port: number): Promise<Proxy> {
    const proxy = new Proxy(port);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  }

  /** Breaks every connection and accepts none until `restore()`. */
  cut(): void {
    this.isCut = true;
    this.#sockets.forEach((socket) => socket.destroy());
  }

  restore(): void {
    this.isCut = false;
  }

  stop(): void {
    this.cut();
    this.#server.close();
  }

  #accept(client: Socket, port: number): void {
    if (this.isCut) return void client.destroy();
    const server = connect(port, "127.0.0.1");
    for (const [one, other] of [[client, server], [server, client]] as const) {
      this.#sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
    client.once("data", (head) => {
      const isUpgrade = /^upgrade: *websocket/im.test(head.toString("latin1"));
      this.upgrades += Number(isUpgrade);
      if (isUpgrade && this.blocksSockets) {
        client.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
      }
      server.write(head);
      client.pipe(server);
      server.pipe(client);
    });
  }
}
