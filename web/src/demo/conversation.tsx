// The conversation of the demo. Only typing signals are sent: the text stays in the field, because Rollcall carries no
// messages.

import { list } from "../format";
import { CONVERSATION } from "./session";

/** The text field, and who else types. */
export function Conversation(props: {
  typists: readonly string[];
  /** Whether the credentials list the conversation. */
  allowed: boolean;
  disabled: boolean;
  onTyping: () => void;
  onStop: () => void;
}) {
  const { typists, allowed, disabled, onTyping, onStop } = props;
  return (
    <section className="panel conversation" aria-labelledby="conversation-title">
      <h2 id="conversation-title">Typing</h2>
      <label>
        Write something: others see that you type; the message is not sent
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
          Your token does not list the conversation <code>{CONVERSATION}</code>, so typing is not shown.
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
