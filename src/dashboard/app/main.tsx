import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/theme.css";
import "./style/layout.css";
import "./style/parts.css";
import { startLive } from "./api/live";
import { Shell } from "./shell";
import { applyPreferences } from "./state/preferences";
import { startSession } from "./state/session";

applyPreferences();
startSession();
startLive();
const root = document.getElementById("app");
if (root) render(<Shell />, root);
