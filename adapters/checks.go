package adapters

// Check is something outside a launch that keeps what is installed in it from
// being heard, and of which Wire says nothing: who diagnoses looks for it, in
// files, or by asking the runtime.
type Check struct {
	Name  string                // what is looked at, a word or two
	Files func(Launch) []string // where it stands: absolute paths, or patterns of path.Match
	// Found says what is wrong, by the files that are there; "" is nothing.
	Found func(l Launch, files map[string][]byte) string

	// Ask is the runtime's command line, and what it is told on stdin, by which
	// it says itself what it makes of a wired launch; no command line is
	// nothing to ask. It is asked nothing that calls a model.
	Ask   func(Launch, Wiring) (args []string, stdin string)
	Waits bool // it ends when its stdin does, and is to answer before that
	// Heard reads a line that it prints, until one is the answer: what is
	// wrong, "" for nothing.
	Heard func(line string) (what string, done bool)

	Fix  string
	Here bool // it is about the launch's folder: elsewhere it may be otherwise
}
