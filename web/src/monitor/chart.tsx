// A chart of the last five minutes, with a legend of current, minimum and maximum values and a table that can be
// expanded. Screen readers skip the canvas.
//
// Pointing at one chart marks the same time in all of them, and the legends show the values at that time.

import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { HISTORY_MS } from "../stats/history";
import type { Sample } from "../stats/sample";
import { useTheme } from "../theme";
import { clock, NOTHING } from "../format";

/** One series of a chart. Series differ in colour and in dash. */
export interface Series {
  label: string;
  /** The CSS custom property with its colour. */
  colour: string;
  dash?: readonly number[];
  of: (sample: Sample) => number | null;
}

/** The definition of a chart. */
export interface ChartSpec {
  title: string;
  hint: string;
  /** Formats a value with its unit. */
  format: (value: number | null) => string;
  /** The values are integers, and so are the axis labels. */
  whole?: boolean;
  lines: readonly Series[];
}

const HEIGHT_PX = 120;
/** The time axis starts with one minute and grows by whole minutes. */
const MIN_AXIS_S = 60;
/** 1, 2, 5, 10, … 5 billion. */
const WHOLE_STEPS = Array.from({ length: 10 }, (_, zeros) => [1, 2, 5].map((step) => step * 10 ** zeros)).flat();
/** The table has a row for every ten seconds. */
const ROW_MS = 10_000;

export function Chart({ plan, samples }: { plan: ChartSpec; samples: readonly Sample[] }) {
  const [pointed, setPointed] = useState<number | null>(null);
  const values = useMemo(() => plan.lines.map((line) => samples.map(line.of)), [plan, samples]);
  return (
    <figure className="chart panel">
      <figcaption>
        <h3 title={plan.hint}>{plan.title}</h3>
        <p className="hint">{plan.hint}</p>
      </figcaption>
      <Canvas plan={plan} samples={samples} values={values} onPoint={setPointed} />
      <Legend plan={plan} values={values} pointed={pointed} samples={samples} />
      <DataTable plan={plan} samples={samples} />
    </figure>
  );
}

type Values = readonly (readonly (number | null)[])[];

function Canvas(props: {
  plan: ChartSpec;
  samples: readonly Sample[];
  values: Values;
  onPoint: (index: number | null) => void;
}) {
  const { plan, samples, values, onPoint } = props;
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const theme = useTheme();

  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const chart = new uPlot(options(plan, element, onPoint), [[], ...plan.lines.map(() => [])], element);
    drawn.current = chart;
    const fit = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    fit.observe(element);
    return () => {
      fit.disconnect();
      chart.destroy();
      drawn.current = null;
    };
  }, [plan, onPoint, theme]);

  useEffect(() => {
    const times = samples.map((sample) => sample.at / 1_000);
    drawn.current?.setData([times, ...values.map((line) => [...line])]);
  }, [samples, values, plan, theme]);

  return <div className="canvas" ref={place} aria-hidden="true" />;
}

/** uPlot options: no title or legend, a faint grid, and time as minutes ago. */
function options(plan: ChartSpec, element: HTMLElement, onPoint: (index: number | null) => void): uPlot.Options {
  const [ink, grid] = [colourOf(element, "--ink-soft"), colourOf(element, "--line")];
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: grid, width: 1 } };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: { key: "rollcall" } },
    scales: {
      // Without points, uPlot passes null for both.
      x: { time: false, range: (_chart, least, most) => [most - shownSeconds(most - least), most ?? 0] },
      y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.15 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        splits: (_chart, _axis, least, most) => ticks(most - least).map((seconds) => most - seconds),
        values: (chart, splits) => splits.map((split) => sinceNow((chart.scales.x?.max ?? split) - split)),
      },
      {
        ...axis,
        size: 56,
        space: 32,
        values: (_chart, splits) => splits.map((value) => plan.format(value)),
        ...(plan.whole && { incrs: WHOLE_STEPS }),
      },
    ],
    series: [
      {},
      ...plan.lines.map((line) => ({
        stroke: colourOf(element, line.colour),
        width: 1.75,
        ...(plan.lines.length === 1 && { fill: colourOf(element, "--fill") }),
        ...(line.dash && { dash: [...line.dash] }),
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(chart) => onPoint(chart.cursor.idx ?? null)] },
  };
}

/** Length of the time axis for this many seconds of samples. */
function shownSeconds(known: number): number {
  return Math.min(HISTORY_MS / 1_000, Math.max(MIN_AXIS_S, Math.ceil(known / 60) * 60));
}

/** The labels of the time axis, in seconds before now. */
function ticks(shown: number): number[] {
  const step = shown > MIN_AXIS_S ? 60 : 20;
  return Array.from({ length: Math.floor(shown / step) + 1 }, (_, place) => shown - place * step);
}

function sinceNow(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole === 0) return "now";
  return whole % 60 === 0 ? `${whole / 60} min` : `${whole} s`;
}

/** The value of a custom property in the current theme; a canvas cannot read styles. */
function colourOf(element: HTMLElement, property: string): string {
  const probe = element.appendChild(document.createElement("span"));
  probe.style.color = `var(${property})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** The current value of each series, or the value at the pointer, with minimum and maximum. */
function Legend(props: { plan: ChartSpec; values: Values; pointed: number | null; samples: readonly Sample[] }) {
  const { plan, values, pointed, samples } = props;
  const at = pointed === null ? undefined : samples[pointed]?.at;
  return (
    <table className="legend">
      <thead>
        <tr>
          <th scope="col" className="visually-hidden">
            series
          </th>
          <th scope="col">{at === undefined ? "now" : clock(at)}</th>
          <th scope="col">min</th>
          <th scope="col">max</th>
        </tr>
      </thead>
      <tbody>
        {plan.lines.map((line, place) => {
          const all = values[place] ?? [];
          const known = all.filter((value): value is number => value !== null);
          const shown = pointed === null ? all.at(-1) : all[pointed];
          return (
            <tr key={line.label}>
              <th scope="row">
                <Swatch line={line} /> {line.label}
              </th>
              <td data-value={shown ?? ""}>{plan.format(shown ?? null)}</td>
              <td>{known.length ? plan.format(Math.min(...known)) : NOTHING}</td>
              <td>{known.length ? plan.format(Math.max(...known)) : NOTHING}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** A sample of the line's colour and dash. */
function Swatch({ line }: { line: Series }) {
  return (
    <svg className="swatch" viewBox="0 0 18 6" width="18" height="6" aria-hidden="true" focusable="false">
      <line x1="1" y1="3" x2="17" y2="3" stroke={`var(${line.colour})`} strokeDasharray={line.dash?.join(" ")} />
    </svg>
  );
}

/** The samples as a table, rendered only while it is expanded. */
function DataTable({ plan, samples }: { plan: ChartSpec; samples: readonly Sample[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        As a table<span className="visually-hidden">: {plan.title}</span>
      </summary>
      {open && (
        <div className="scroll" tabIndex={0} role="region" aria-label={`${plan.title}, as a table`}>
          <table>
            <thead>
              <tr>
                <th scope="col">time</th>
                {plan.lines.map((line) => (
                  <th scope="col" key={line.label}>
                    {line.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {everyTenSeconds(samples).map((sample) => (
                <tr key={sample.at}>
                  <th scope="row">{clock(sample.at)}</th>
                  {plan.lines.map((line) => (
                    <td key={line.label}>{plan.format(line.of(sample))}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

/** The newest sample, and one for every ten seconds before it. */
function everyTenSeconds(samples: readonly Sample[]): Sample[] {
  const rows: Sample[] = [];
  for (const sample of [...samples].reverse()) {
    const last = rows.at(-1);
    if (!last || last.at - sample.at >= ROW_MS - 500) rows.push(sample);
  }
  return rows;
}
