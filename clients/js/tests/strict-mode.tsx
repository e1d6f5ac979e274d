// A test page: the hooks under React's StrictMode, recording the messages that are sent.

import { StrictMode, useState, type ReactNode } from "react";
import { createRoot } from "react-dom/client";

import { RollcallProvider, usePresence, useTyping } from "../src/react.js";

declare global {
  interface Window {
    sent: string[];
    sockets: number;
    renders: number;
    act: {
      users(names: string[]): void;
      again(): void;
      another(): void;
      mount(isMounted: boolean): void;
      type(): void;
    };
  }
}

const query = new URLSearchParams(location.search);
window.sent = [];
window.sockets = 0;
window.renders = 0;

/** Records sockets and messages. */
class RecordingSocket extends WebSocket {
  constructor(url: string) {
    super(url);
    window.sockets++;
  }

  override send(text: string): void {
    window.sent.push(text);
    super.send(text);
  }
}

function People({ users }: { users: string[] }): ReactNode {
  window.renders++;
  const presences = usePresence([...users]);
  const { typists, type } = useTyping("room");
  window.act.type = type;
  const states = users.map((user) => `${user} ${presences.get(user)?.state ?? "unknown"}`);
  return (
    <p>
      {states.join(", ")}; {typists.join(", ")} typing
    </p>
  );
}

function App(): ReactNode {
  const [users, setUsers] = useState(["bob"]);
  const [isMounted, setMounted] = useState(true);
  const [, setCount] = useState(0);
  const [key, setKey] = useState(0);
  window.act = {
    ...window.act,
    users: setUsers,
    again: () => setCount((count) => count + 1),
    another: () => setKey((key) => key + 1),
    mount: setMounted,
  };
  const options = { url: query.get("host") ?? "", as: "alice", WebSocket: RecordingSocket };
  return isMounted ? (
    <RollcallProvider key={key} options={options}>
      <People users={users} />
    </RollcallProvider>
  ) : (
    <p>unmounted</p>
  );
}

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
