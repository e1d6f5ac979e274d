// A user's state as an icon. Every state has its own shape, so that colour is not the only difference. The state's name
// is always beside it, so screen readers skip the icon.

import type { ShownState } from "../demo/presence-text";

export function Dot({ state }: { state: ShownState }) {
  return (
    <svg className={`dot dot-${state}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      {SHAPES[state]}
    </svg>
  );
}

const SHAPES: Record<ShownState, React.ReactNode> = {
  online: <circle cx="8" cy="8" r="6" fill="currentColor" />,
  away: <path d="M12.9 11.4A6 6 0 1 1 8.6 2.2a4.8 4.8 0 0 0 4.3 9.2z" fill="currentColor" />,
  busy: (
    <>
      <circle cx="8" cy="8" r="6" fill="currentColor" />
      <rect className="cut" x="4.5" y="7" width="7" height="2" rx="1" />
    </>
  ),
  offline: <circle cx="8" cy="8" r="5" fill="none" stroke="currentColor" strokeWidth="2" />,
  hidden: (
    <>
      <circle cx="8" cy="8" r="5.2" fill="none" stroke="currentColor" strokeWidth="1.6" strokeDasharray="2.4 2" />
      <path d="M3.5 12.5l9-9" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" />
    </>
  ),
  unknown: <circle cx="8" cy="8" r="2" fill="currentColor" />,
};
