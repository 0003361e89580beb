package mockmodel

import (
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Turn is one answer of the model.
type Turn struct {
	Status int           // an HTTP error instead of an answer
	Pace   time.Duration // wait between the pieces of a streamed answer
	Blocks []Block
}

// Block is a content block: text, or a call of a tool.
type Block struct {
	Text  string
	Tool  string
	Input map[string]any
	Ask   bool // the call shall need a permission, also where the agent has a sandbox
}

// scripts names each conversation that the server can hold. dir is the
// directory that the agent works in.
var scripts = map[string]func(dir string) []Turn{
	// One plain answer.
	"hello": func(string) []Turn { return []Turn{say("Hello there.")} },

	// A tool that needs no permission.
	"safe": func(dir string) []Turn {
		return []Turn{bash("ls "+dir, "list the files"), say("Listed the files.")}
	},

	// A file write; it asks unless edits are accepted.
	"write1": func(dir string) []Turn {
		return []Turn{
			{Blocks: []Block{{Tool: "Write", Input: map[string]any{
				"file_path": filepath.Join(dir, "note.txt"), "content": "a note\n"}}}},
			say("The file is written."),
		}
	},

	// A command that needs permission.
	"bash1": func(dir string) []Turn {
		return []Turn{
			asking(bash("touch "+filepath.Join(dir, "made.txt"), "make a file")),
			say("The file is made."),
		}
	},

	// A command that a user's rules may forbid. The end takes its time, as a
	// model's does: some agents note down a moment late that it was forbidden.
	"remove": func(dir string) []Turn {
		return []Turn{
			asking(bash("rm -f "+filepath.Join(dir, "made.txt"), "remove a file")),
			{Pace: 100 * time.Millisecond, Blocks: []Block{{Text: strings.Repeat("The file is gone. ", 20)}}},
		}
	},

	// Two tools that fail, and an end all the same.
	"fail": func(dir string) []Turn {
		return []Turn{
			bash("ls "+filepath.Join(dir, "no-such-directory"), "list what is not there"),
			bash("exit 3", "exit with 3"),
			say("Both failed."),
		}
	},

	// A form: one single choice, one multiple choice.
	"ask": func(string) []Turn {
		return []Turn{
			{Blocks: []Block{{Tool: "AskUserQuestion", Input: map[string]any{
				"questions": []any{
					question("Which colour?", "Colour", false, "Red", "Blue"),
					question("Which sizes?", "Sizes", true, "Small", "Large"),
				}}}}},
			say("Thanks for the answer."),
		}
	},

	// A tool of an MCP server that asks the user something itself.
	"elicit": func(string) []Turn {
		return []Turn{{Blocks: []Block{{Tool: "mcp__elic__ask", Input: map[string]any{}}}}, say("The server has its answer.")}
	},

	// A subagent that runs a tool of its own.
	"sub": func(string) []Turn { return helper(false, "The helper is done.") },

	// The same, in the background.
	"subback": func(string) []Turn { return helper(true, "The helper is at work.") },

	"subinner": func(dir string) []Turn {
		return []Turn{bash("ls "+dir, "list as a helper"), say("The inner result.")}
	},

	// Text that streams for a minute: time to interrupt it.
	"slowtext": func(string) []Turn {
		return []Turn{{
			Pace:   100 * time.Millisecond,
			Blocks: []Block{{Text: strings.Repeat("slow words in the middle of a long answer ", 180)}},
		}}
	},

	// A tool that runs for two minutes: time to interrupt it. Claude Code lets no
	// bare "sleep 120" run.
	"slowbash": func(string) []Turn {
		return []Turn{
			{Blocks: []Block{{Text: "Sleeping."}, {Tool: "Bash", Input: map[string]any{
				"command": "sleep 120s", "description": "sleep"}}}},
			say("Slept."),
		}
	},

	// An error of the API that is not worth a retry.
	"err": func(string) []Turn { return []Turn{{Status: 400}} },
}

// Scripts names the scripts there are.
func Scripts() []string {
	var names []string
	for n := range scripts {
		names = append(names, n)
	}
	return names
}

// sideAnswer is what side requests hear: whatever members they ask for.
const sideAnswer = `{"title":"A mock title","isNewTopic":true,"next_speaker":"user","reasoning":"none","summary":"A mock summary."}`

// helper starts a subagent. It says where that runs, for versions differ in what
// they do unasked.
func helper(background bool, then string) []Turn {
	return []Turn{
		{Blocks: []Block{
			{Text: "Starting a helper."},
			{Tool: "Agent", Input: map[string]any{
				"description":       "Helper task",
				"prompt":            "Do it [[script:subinner]]",
				"subagent_type":     "general-purpose",
				"run_in_background": background,
			}}}},
		say(then),
	}
}

func say(text string) Turn { return Turn{Blocks: []Block{{Text: text}}} }

func bash(command, description string) Turn {
	return Turn{Blocks: []Block{{Tool: "Bash", Input: map[string]any{
		"command": command, "description": description}}}}
}

func asking(t Turn) Turn {
	t.Blocks[0].Ask = true
	return t
}

func question(text, header string, multi bool, labels ...string) map[string]any {
	var options []any
	for _, l := range labels {
		options = append(options, map[string]any{"label": l, "description": "the " + l + " one"})
	}
	return map[string]any{"question": text, "header": header, "multiSelect": multi, "options": options}
}

var scriptTag = regexp.MustCompile(`\[\[script:([a-z0-9]+)\]\]`)

// echoTag marks text of a prompt that the answer shall repeat: how a test
// brings a string of its own into a tool call and its result.
var echoTag = regexp.MustCompile(`\[\[echo:([^\]]+)\]\]`)

// choose finds the turn that answers a request: the script is named by the
// latest user message with a tag, the turn is the number of answers since.
func choose(req request, dir string) (turn Turn, key []string) {
	if len(req.tools) == 0 {
		// Side requests (titles, classifiers) carry no tools.
		return say(sideAnswer), []string{"side"}
	}
	for i := len(req.messages) - 1; i >= 0; i-- {
		m := req.messages[i]
		if m.role != "user" {
			continue
		}
		text := m.text
		tags := scriptTag.FindAllStringSubmatch(text, -1)
		if tags == nil {
			continue
		}
		name := tags[len(tags)-1][1]
		n, prompts := 0, 0
		for _, later := range req.messages[i+1:] {
			if later.role == "assistant" {
				n++
			}
		}
		for _, earlier := range req.messages[:i] {
			if scriptTag.MatchString(earlier.text) {
				prompts++
			}
		}
		key = []string{name, text, string(rune('0' + n)), string(rune('0' + prompts))}
		make, ok := scripts[name]
		if !ok {
			return say("There is no script " + name + "."), key
		}
		turns := make(dir)
		if n >= len(turns) {
			return say("The script " + name + " is at its end."), key
		}
		turn = turns[n]
		if e := echoTag.FindStringSubmatch(text); e != nil {
			turn = withEcho(turn, e[1])
		}
		return turn, key
	}
	return say("A mock answer without a script."), []string{"none"}
}

// withEcho puts s into every text and every shell command of a turn.
func withEcho(t Turn, s string) Turn {
	blocks := make([]Block, len(t.Blocks))
	for i, b := range t.Blocks {
		if b.Text != "" {
			b.Text += " " + s
		}
		if c, ok := b.Input["command"].(string); ok {
			b.Input["command"] = "echo '" + s + "'; " + c
		}
		blocks[i] = b
	}
	t.Blocks = blocks
	return t
}
