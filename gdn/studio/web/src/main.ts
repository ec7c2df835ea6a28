// Entry point.

import './app.js';
