// Where the console begins.

import { createRoot } from "react-dom/client";

import { App } from "./app";
import "uplot/dist/uPlot.min.css";
import "./styles/console.css";
import { restoreTheme } from "./theme";

restoreTheme();
const place = document.getElementById("console");
if (place) createRoot(place).render(<App />);
