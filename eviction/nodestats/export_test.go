package nodestats

// Rearm is how often Watch looks for something new to watch.
const Rearm = rearm
