// Where the program begins.

import './app.js';
