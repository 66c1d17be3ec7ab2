// A library that is loaded and let go.
int large[1 << 16];
int plugin(int x) { return large[x & 65535] = x; }
