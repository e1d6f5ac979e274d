// Server-sent events, read by hand: a stream that `fetch` answers can carry a token in its header and resume from where
// we say, which `EventSource` cannot.

/** One event as it came, field by field. An id may come alone. */
export interface Framed {
  event?: string;
  id?: string;
  data?: string;
}

/** Reads text in whatever pieces it comes. Answers the events that are complete. The service ends lines by one letter
 * and writes data on one line; nothing else that the standard allows is read. */
export function framer(): (text: string) => Framed[] {
  let rest = "";
  return (text) => {
    const frames = (rest + text).split("\n\n");
    rest = frames.pop() ?? "";
    const fields = (frame: string) => [...frame.matchAll(/^(\w+): ?(.*)$/gm)].map(([, name, value]) => [name, value]);
    return frames.map((frame) => Object.fromEntries(fields(frame)) as Framed);
  };
}
