// Entry point of the console.

import { createRoot } from "react-dom/client";

import { App } from "./app";
import "uplot/dist/uPlot.min.css";
import "./styles/console.css";
import { restoreTheme } from "./theme";

restoreTheme();
const root = document.getElementById("console");
if (root) createRoot(root).render(<App />);
