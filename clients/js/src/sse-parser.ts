// Parses server-sent events from a `fetch` stream. Unlike `EventSource`, `fetch` can send a token in a header and
// choose the event id to resume from.

/** The fields of one event. An id may come without data. */
export interface SseFields {
  event?: string;
  id?: string;
  data?: string;
}

/** Takes text in chunks of any size and returns the events completed so far. The service ends lines with LF and writes
 * data on one line; other forms that the standard allows are not supported. */
export function sseParser(): (text: string) => SseFields[] {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop() ?? "";
    const fields = (block: string) => [...block.matchAll(/^(\w+): ?(.*)$/gm)].map(([, name, value]) => [name, value]);
    return blocks.map((block) => Object.fromEntries(fields(block)) as SseFields);
  };
}
