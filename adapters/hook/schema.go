package hook

import (
	"cmp"
	"encoding/json"
	"slices"

	"aep-wrap/event"
)

// SchemaFields reads the flat JSON schema of an MCP elicitation as form
// fields, in the given order of its properties; what is not in it comes after,
// by name. A property of a kind that the protocol has no field for is one of
// free text.
func SchemaFields(schema map[string]any, order []string) []event.FormField {
	props, _ := schema["properties"].(map[string]any)
	var required []string
	if list, ok := schema["required"].([]any); ok {
		for _, r := range list {
			if s, ok := r.(string); ok {
				required = append(required, s)
			}
		}
	}
	place := make(map[string]int, len(order))
	for i, id := range order {
		place[id] = i - len(order)
	}
	ids := make([]string, 0, len(props))
	for id := range props {
		if name(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(place[a], place[b]), cmp.Compare(a, b))
	})
	fields := make([]event.FormField, 0, len(ids))
	for _, id := range ids {
		p, _ := props[id].(map[string]any)
		must := slices.Contains(required, id)
		f := event.FormField{ID: id, Type: "string", Label: id, Required: &must}
		if s, ok := p["title"].(string); ok && s != "" {
			f.Label = s
		} else if s, ok := p["description"].(string); ok && s != "" {
			f.Label = s
		}
		typ, _ := p["type"].(string)
		switch typ {
		case "integer", "number":
			f.Type = "number"
			f.Min, f.Max = number(p["minimum"]), number(p["maximum"])
		case "boolean":
			f.Type = "boolean"
		case "array":
			if items, ok := p["items"].(map[string]any); ok {
				f.Choices, f.Multi = choices(items), true
			}
		default:
			f.Choices = choices(p)
		}
		if len(f.Choices) > 0 {
			f.Type = "select"
		} else {
			f.Multi = false
		}
		fields = append(fields, f)
	}
	return fields
}

// choices reads enum with enumNames, or oneOf and anyOf of {const, title}.
func choices(p map[string]any) (out []event.FormChoice) {
	if enum, ok := p["enum"].([]any); ok {
		names, _ := p["enumNames"].([]any)
		for i, v := range enum {
			id, ok := v.(string)
			if !ok || !name(id) {
				continue
			}
			c := event.FormChoice{ID: id, Label: id}
			if i < len(names) {
				if s, ok := names[i].(string); ok && s != "" {
					c.Label = s
				}
			}
			out = append(out, c)
		}
		return out
	}
	for _, member := range []string{"oneOf", "anyOf"} {
		list, _ := p[member].([]any)
		for _, v := range list {
			o, _ := v.(map[string]any)
			id, _ := o["const"].(string)
			if !name(id) {
				continue
			}
			c := event.FormChoice{ID: id, Label: id}
			if s, ok := o["title"].(string); ok && s != "" {
				c.Label = s
			}
			out = append(out, c)
		}
	}
	return out
}

func number(v any) *float64 {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return &f
}
