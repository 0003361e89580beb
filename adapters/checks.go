package adapters

// Check is something outside a launch that keeps what is installed in it from
// being heard, and of which Wire says nothing: who diagnoses looks for it.
type Check struct {
	Name  string                // what is looked at, a word or two
	Files func(Launch) []string // where it stands: absolute paths, or patterns of path.Match
	// Found says what is wrong, by the files that are there; "" is nothing.
	Found func(l Launch, files map[string][]byte) string
	Fix   string
	Here  bool // it is about the launch's folder: elsewhere it may be otherwise
}
