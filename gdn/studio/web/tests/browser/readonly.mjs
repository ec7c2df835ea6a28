// Every page of a session that may not write: no button changes anything. The same as `pages`, for such a session.
process.env.STUDIO_READONLY = '1';
await import('./pages.mjs');
