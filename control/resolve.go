package control

import (
	"fmt"
	"slices"
	"strings"
)

// AmbiguousError is a beginning that several ids have.
type AmbiguousError struct {
	Prefix string
	Found  []string // sorted
}

func (e *AmbiguousError) Error() string {
	const most = 5
	found, more := e.Found, ""
	if n := len(found) - most; n > 0 {
		found, more = found[:most], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%q is not unique: %s%s", e.Prefix, strings.Join(found, ", "), more)
}

// Resolve finds the one id that a person meant by its beginning: the whole id,
// or the only one that begins so, upper and lower case alike where nothing
// matches exactly. The error names what there is to choose from.
func Resolve(prefix string, ids []string) (string, error) {
	if prefix == "" {
		return "", fmt.Errorf("an id is missing")
	}
	if slices.Contains(ids, prefix) {
		return prefix, nil
	}
	var found []string
	for _, fold := range []bool{false, true} {
		for _, id := range ids {
			head := id[:min(len(prefix), len(id))]
			if (head == prefix || fold && strings.EqualFold(head, prefix)) && !slices.Contains(found, id) {
				found = append(found, id)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("nothing begins with %q", prefix)
	}
	slices.Sort(found)
	return "", &AmbiguousError{prefix, found}
}
