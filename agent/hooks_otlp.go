package agent

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"aep-wrap/adapters"
)

// otlp takes OTLP/HTTP in its JSON encoding. Log records become moments;
// traces and metrics are taken and let go, so that an exporter stays content.
func (h *HookServer) otlp(w http.ResponseWriter, r *http.Request) {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(mediaType) != "application/json" {
		h.cfg.Observer.Refuse(Refusal{Channel: adapters.Telemetry, Name: r.PathValue("signal"), Reason: "not_json"})
		http.Error(w, "want application/json", http.StatusUnsupportedMediaType)
		return
	}
	h.intake.work(h.body(w, r), func(p *payload, tree map[string]any) {
		switch {
		case r.PathValue("signal") != "logs":
		case p.reason != "":
			h.cfg.Observer.Refuse(Refusal{Channel: adapters.Telemetry, Name: "logs", Reason: p.reason, Bytes: p.size})
		default:
			ms := logMoments(tree, time.Now())
			for _, m := range ms {
				h.cfg.Observer.Observe(m, p.size/len(ms))
			}
		}
	})
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte("{}"))
}

// logMoments flattens an ExportLogsServiceRequest: one moment for each log
// record, its attributes as the payload's members, the resource's under
// "resource", the body under "body". The name is the event's.
func logMoments(tree map[string]any, now time.Time) []adapters.Moment {
	var out []adapters.Moment
	for _, rl := range objects(tree["resourceLogs"]) {
		res, _ := rl["resource"].(map[string]any)
		resource := otlpAttributes(res["attributes"])
		for _, sl := range objects(rl["scopeLogs"]) {
			for _, rec := range objects(sl["logRecords"]) {
				p := otlpAttributes(rec["attributes"])
				if body := otlpValue(rec["body"]); body != nil {
					p["body"] = body
				}
				if len(resource) > 0 {
					p["resource"] = resource
				}
				m := adapters.Moment{Channel: adapters.Telemetry, Payload: p, Time: now}
				m.Name, _ = rec["eventName"].(string)
				if m.Name == "" {
					m.Name, _ = p["event.name"].(string)
				}
				if m.Name == "" {
					m.Name, _ = p["body"].(string)
				}
				m.Session, _ = p["session.id"].(string)
				out = append(out, m)
			}
		}
	}
	return out
}

func objects(v any) []map[string]any {
	list, _ := v.([]any)
	out := make([]map[string]any, 0, len(list))
	for _, x := range list {
		if o, ok := x.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

func otlpAttributes(v any) map[string]any {
	out := map[string]any{}
	for _, kv := range objects(v) {
		if key, _ := kv["key"].(string); key != "" {
			out[key] = otlpValue(kv["value"])
		}
	}
	return out
}

// otlpValue is an AnyValue as plain JSON. Integers come as strings there, for
// the sake of 64 bits; they become numbers again.
func otlpValue(v any) any {
	o, _ := v.(map[string]any)
	for kind, x := range o {
		switch kind {
		case "stringValue", "boolValue", "doubleValue", "bytesValue":
			return x
		case "intValue":
			if s, ok := x.(string); ok {
				if _, err := strconv.ParseInt(s, 10, 64); err == nil {
					return json.Number(s)
				}
			}
			return x
		case "arrayValue":
			list, _ := x.(map[string]any)
			values := []any{}
			for _, item := range objects(list["values"]) {
				values = append(values, otlpValue(item))
			}
			return values
		case "kvlistValue":
			list, _ := x.(map[string]any)
			return otlpAttributes(list["values"])
		}
	}
	return nil
}
