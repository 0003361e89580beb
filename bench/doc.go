// Package bench measures what aep-wrap costs whom: the agent (its start, its
// hooks, its terminal), the machine (memory, disk), and the road (events and
// text). It holds benchmarks alone; README.md holds their figures with the
// machine they are from. Processes are timed beside what they are compared
// with, in turns and in one run, so that a busy machine is busy for both.
package bench
