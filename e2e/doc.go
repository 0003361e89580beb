// Package e2e tries the whole: the real claude, installed from its registry by
// exact version, bare and wrapped, headless and in its terminal interface,
// against the scripted model of testdata/mockmodel on loopback.
//
// It holds tests alone. They run when AEP_E2E=1 (the test script sets it) and
// are skipped with a word where the agent cannot be installed. Each run has a
// home, a configuration and a working directory of its own; nothing of the
// user's is read or written but a cache of the installed agent. Tests wait for
// what they want to see, with a bound, and never sleep to be in time.
package e2e
