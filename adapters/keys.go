package adapters

// EscTwice types Esc twice, in the one spelling of the key that nothing can be
// read into: two bare ESC bytes that come while a screen is short of time are
// one key with Alt to it, or the second comes too late for a pair.
const EscTwice = "\x1b[27u\x1b[27u"
