// What went wrong, as RFC 9457 has it: every rejected call and every `error` listener gets one of these.

/** The members of `application/problem+json` that the service sends. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  field?: string;
  rule?: string;
  retry_after_s?: number;
}

/** A problem. `status` is that of HTTP, or 0 where no answer came. */
export class RollcallError extends Error {
  override readonly name = "RollcallError";
  declare readonly status: number;
  declare readonly title: string;
  declare readonly detail: string;
  /** After how many milliseconds to try again. */
  declare readonly retryAfterMs: number | undefined;

  /** `problem` is as the service sent it: its `type` is for programs to compare, its `field` names what it is about. */
  constructor(readonly problem: Problem) {
    const { status = 0, title = "", detail = title, retry_after_s } = problem;
    super(detail);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.retryAfterMs = retry_after_s && retry_after_s * 1000;
  }
}

/** Whatever was thrown, as a problem. */
export function asError(thrown: unknown, title = "No answer"): RollcallError {
  return thrown instanceof RollcallError ? thrown : new RollcallError({ title, detail: String(thrown) });
}
