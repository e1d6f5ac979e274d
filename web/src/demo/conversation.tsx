// A conversation that everybody in the room shares, of which only one thing is real: who is typing. What is written
// stays in the field; Rollcall carries no messages.

import { list } from "../format";
import { CONVERSATION } from "./session";

/** The field, and who else types. */
export function Conversation(props: {
  typists: readonly string[];
  /** Whether the person may type here, and see who does. */
  allowed: boolean;
  disabled: boolean;
  onTyping: () => void;
  onStop: () => void;
}) {
  const { typists, allowed, disabled, onTyping, onStop } = props;
  return (
    <section className="panel conversation" aria-labelledby="conversation-title">
      <h2 id="conversation-title">A conversation</h2>
      <label>
        Write something: the others see that you type, and what you write stays here
        <textarea
          rows={2}
          disabled={disabled || !allowed}
          placeholder="Hello…"
          onChange={(event) => (event.target.value ? onTyping() : onStop())}
          onBlur={onStop}
        />
      </label>
      {!allowed && (
        <p className="hint">
          Your token does not list the conversation <code>{CONVERSATION}</code>, so you are told of nobody who types
          there.
        </p>
      )}
      <p className="typing" role="status">
        {typists.length > 0 && (
          <>
            <span className="bouncing" aria-hidden="true">
              <i />
              <i />
              <i />
            </span>
            {`${list(typists)} ${typists.length === 1 ? "is" : "are"} typing`}
          </>
        )}
      </p>
    </section>
  );
}
