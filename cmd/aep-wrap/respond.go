package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/collector/client"
	"aep-wrap/control"
	"aep-wrap/event"
)

func newRespondCmd(a *app) *cobra.Command {
	var given reply
	var follow following
	cmd := &cobra.Command{
		Use:   "respond SESSION REQUEST",
		Short: "Answer a request of an agent's from here",
		Long: `Answers what aep-wrap pending shows: a permission or a choice with --option, a
question with --text, a form with --values. SESSION and REQUEST are names or the
beginnings of them. The answer is held to the request's options and fields
before it is sent, as far as the collector knows them.

A text that is an option's id or label is that option. Any other text, given to
a permission, refuses it with that text as the reason; it never approves.
Whoever answers first wins, at the agent's own screen too: a later answer is
refused, with what was decided.

` + exitCodes,
		Example: `  aep-wrap respond 8f2c 01K5 --option allow
  aep-wrap respond 8f2c 01K5 --option deny --text "use the staging database"
  aep-wrap respond 8f2c 01K5 --values '{"size":"m","notify":true}' --wait
  aep-wrap respond 8f2c 01K5 --text - < answer.txt`,
		Args:              sessionArg(2, "a SESSION and a REQUEST, as aep-wrap pending shows them"),
		ValidArgsFunction: a.completeRequest,
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, there := range map[string]*bool{"option": &given.hasOption, "text": &given.hasText, "values": &given.hasValues} {
				*there = cmd.Flags().Changed(name)
			}
			if err := errors.Join(given.check(), follow.check()); err != nil {
				return err
			}
			return a.respond(cmd.Context(), args[0], args[1], given, follow)
		},
	}
	cmd.Flags().StringVar(&given.option, "option", "", "the option's `ID`")
	cmd.Flags().StringVar(&given.text, "text", "", "a text as the answer, or beside an option as the reason; - reads standard input")
	cmd.Flags().StringVar(&given.values, "values", "", "a form's answers as a `JSON` object of its fields' ids; - reads standard input")
	_ = cmd.RegisterFlagCompletionFunc("option", a.completeOption)
	follow.flags(cmd.Flags())
	return cmd
}

// reply is an answer as it stands on the command line.
type reply struct {
	option, text, values          string
	hasOption, hasText, hasValues bool
}

func (r *reply) check() error {
	switch {
	case !r.hasOption && !r.hasText && !r.hasValues:
		return usageError("respond: want --option ID, --text S or --values JSON")
	case r.hasValues && (r.hasOption || r.hasText):
		return usageError("respond: --values answers a form alone: leave --option and --text out")
	case r.hasOption && r.option == "":
		return usageError("--option: want an option's id")
	}
	return nil
}

// answer reads the words.
func (r *reply) answer(a *app) (control.Answer, error) {
	out := control.Answer{Option: r.option}
	var err error
	if out.Text, err = a.words("--text", r.text); err != nil {
		return out, err
	}
	if r.hasText && strings.TrimSpace(out.Text) == "" {
		return out, usageError("--text: it is empty")
	}
	if !r.hasValues {
		return out, nil
	}
	raw, err := a.words("--values", r.values)
	if err != nil {
		return out, err
	}
	if out.Values, err = event.ParseObject([]byte(raw)); err != nil {
		return out, usageError(`--values: %w; want an object such as {"size":"m"}`, err)
	}
	return out, nil
}

func (a *app) respond(ctx context.Context, session, request string, given reply, o following) error {
	answer, err := given.answer(a)
	if err != nil {
		return err
	}
	t, err := a.target(ctx, session)
	if err != nil {
		return err
	}
	defer func() { t.socket.Close() }()
	filter := string(filterOf(map[string]any{"session": t.name}))
	f, err := a.held(ctx, filter)
	if err == nil && t.claim != nil {
		err = a.deepen(ctx, f, filter, []client.Claim{*t.claim})
	}
	if err != nil {
		return err
	}
	q, id, err := a.findRequest(f, request)
	if err != nil {
		return err
	}
	var fields []event.FormField
	args, source := "", ""
	if q != nil {
		fields, args, source = q.Fields, q.args, q.source
		if err := q.fault(answer); err != nil {
			return err
		}
		a.tellApplied(q, answer)
	}
	return t.send(ctx, from().Respond(time.Now(), t.name, id, answer, fields, args), o, source)
}

// findRequest finds the request that a person meant: among those that wait,
// else among those that are settled, which the target then says. One that the
// collector does not hold is sent as it was written.
func (a *app) findRequest(f *fleet, prefix string) (*ask, string, error) {
	waits := map[string]*ask{}
	var ids, past []string
	for _, m := range f.list() {
		for id, q := range m.asks {
			waits[id] = q
			ids = append(ids, id)
		}
		for id := range m.settled {
			past = append(past, id)
		}
	}
	for _, among := range [][]string{ids, past} {
		id, err := control.Resolve(prefix, among)
		if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
			return nil, "", a.ambiguous("request", prefix, many.Found, func(id string) string {
				if q := waits[id]; q != nil {
					return q.prompt
				}
				return "settled"
			})
		}
		if err == nil {
			return waits[id], id, nil
		}
	}
	return nil, prefix, nil
}

// fault says why an answer is none to the request, before it is sent. What
// the request's capture level has left out cannot be held against it.
func (q *ask) fault(answer control.Answer) error {
	if q.Kind == "" {
		return nil
	}
	if !q.Answerable() {
		return &exitError{code: control.ExitRefused, err: errors.New("refused: this request can only be answered in the agent's own screen")}
	}
	data := map[string]any{}
	if answer.Option != "" {
		data["option"] = answer.Option
	}
	if answer.Text != "" {
		data["text"] = answer.Text
	}
	if answer.Values != nil {
		data["values"] = answer.Values
	}
	_, fault := q.Read(data)
	if fault == "" && len(q.Fields) > 0 { // a target leaves out what it has no field for, and a slip of the pen with it
		for _, id := range slices.Sorted(maps.Keys(answer.Values)) {
			if !slices.ContainsFunc(q.Fields, func(f event.FormField) bool { return f.ID == id }) {
				fault = "data.answer.values." + id + " is no field of the form"
			}
		}
	}
	if fault == "" {
		return nil
	}
	return usageError("%s%s", visible(strings.ReplaceAll(fault, "data.answer.", "--")), q.wants(fault))
}

// wants names what the request takes, where a fault does not.
func (q *ask) wants(fault string) string {
	switch {
	case len(q.Fields) > 0:
		var parts []string
		for i := range q.Fields {
			parts = append(parts, describeField(&q.Fields[i]))
		}
		return "; its fields are " + strings.Join(parts, ", ")
	case len(q.Options) > 0 && !strings.HasSuffix(fault, q.Options[len(q.Options)-1].ID):
		var ids []string
		for _, o := range q.Options {
			ids = append(ids, visible(o.ID))
		}
		return "; its options are " + strings.Join(ids, ", ")
	}
	return ""
}

// describeField is a form's field on one line.
func describeField(f *event.FormField) string {
	s := visible(f.ID) + " (" + visible(f.Type)
	if f.Required != nil && *f.Required {
		s += ", required"
	}
	if len(f.Choices) > 0 {
		var ids []string
		for _, c := range f.Choices {
			id := visible(c.ID)
			if c.Label != "" && c.Label != c.ID {
				id += " = " + visible(clip(c.Label, 60))
			}
			ids = append(ids, id)
		}
		more := ""
		if f.Other {
			more = " or another text"
		}
		of := ": one of "
		if f.Multi {
			of = ": some of "
		}
		s += of + strings.Join(ids, " | ") + more
	}
	if f.Min != nil {
		s += fmt.Sprintf(", at least %v", *f.Min)
	}
	if f.Max != nil {
		s += fmt.Sprintf(", at most %v", *f.Max)
	}
	return s + ")"
}

// tellApplied says what a text will be taken for, where that is another thing
// than it says.
func (a *app) tellApplied(q *ask, answer control.Answer) {
	if answer.Text == "" || answer.Option != "" || a.cfg.Quiet || len(q.Options) == 0 {
		return
	}
	if applied, fault := q.Read(map[string]any{"text": answer.Text}); fault == "" && applied.Option != "" && applied.Text != "" {
		a.warn("the text names no option: it refuses (%s), with the text as the reason", visible(applied.Option))
	}
}
