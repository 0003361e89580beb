package check

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rules are what no schema says: what a pod needs to start at all, and what we
// promise of its security.
func rules(all []object) error {
	var errs []error
	for _, o := range all {
		name := str(o, "kind") + " " + str(o, "metadata", "name")
		bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(name+": "+format, args...)) }
		switch str(o, "kind") {
		case "Job", "Deployment":
			template, _ := at(o, "spec", "template").(object)
			spec, _ := template["spec"].(object)
			podRules(spec, bad)
			if want := at(o, "spec", "selector", "matchLabels"); want != nil && !within(want, at(template, "metadata", "labels")) {
				bad("selects other pods than its own")
			}
			if str(o, "kind") == "Job" && !slices.Contains([]string{"Never", "OnFailure"}, str(spec, "restartPolicy")) {
				bad("a Job's pod wants a restartPolicy of Never or OnFailure")
			}
		case "Service", "NetworkPolicy", "ServiceMonitor", "PodMonitor":
			want := at(o, "spec", "selector")
			for _, k := range []string{"podSelector", "selector"} {
				if m := at(o, "spec", k, "matchLabels"); m != nil {
					want = m
				}
			}
			if !slices.ContainsFunc(all, func(p object) bool {
				return within(want, at(p, "spec", "template", "metadata", "labels")) ||
					str(o, "kind") == "ServiceMonitor" && str(p, "kind") == "Service" && within(want, at(p, "metadata", "labels"))
			}) {
				bad("selects nothing that is there")
			}
		}
		if n := str(o, "metadata", "name"); n == "" || len(n) > 63 {
			bad("its name is empty or too long")
		}
	}
	return errors.Join(errs...)
}

// within says whether every label of want is among have.
func within(want, have any) bool {
	w, _ := want.(object)
	h, _ := have.(object)
	for k, v := range w {
		if h[k] != v {
			return false
		}
	}
	return len(w) > 0
}

func podRules(spec object, bad func(string, ...any)) {
	sec := at(spec, "securityContext")
	if at(sec, "runAsNonRoot") != true || at(sec, "fsGroup") == nil {
		bad("its pod wants runAsNonRoot and an fsGroup")
	}
	if str(spec, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
		bad("its pod wants the seccomp profile RuntimeDefault")
	}
	if spec["automountServiceAccountToken"] != false {
		bad("its pod mounts a service account's token")
	}
	volumes, used := map[string]bool{}, map[string]bool{}
	for _, v := range list(spec, "volumes") {
		if volumes[str(v, "name")] {
			bad("two volumes %s", str(v, "name"))
		}
		volumes[str(v, "name")] = true
		if dir, ok := v["emptyDir"].(object); ok && dir["sizeLimit"] == nil {
			bad("volume %s may fill the node's disk: it wants a sizeLimit", str(v, "name"))
		}
	}
	sidecars := 0
	for _, kind := range []string{"initContainers", "containers"} {
		for _, c := range list(spec, kind) {
			containerRules(c, bad)
			for _, m := range list(c, "volumeMounts") {
				if used[str(m, "name")] = true; !volumes[str(m, "name")] {
					bad("container %s mounts %s, which is no volume", str(c, "name"), str(m, "name"))
				}
			}
			if c["restartPolicy"] != nil {
				sidecars++
				sidecarRules(spec, c, kind, bad)
			}
		}
	}
	for v := range volumes {
		if !used[v] {
			bad("volume %s is mounted by nobody", v)
		}
	}
}

func containerRules(c object, bad func(string, ...any)) {
	name := str(c, "name")
	sec := at(c, "securityContext")
	if at(sec, "allowPrivilegeEscalation") != false || at(sec, "readOnlyRootFilesystem") != true {
		bad("container %s wants no privilege escalation and a read-only root", name)
	}
	if drop, _ := at(sec, "capabilities", "drop").([]any); len(drop) != 1 || drop[0] != "ALL" || at(sec, "capabilities", "add") != nil {
		bad("container %s keeps capabilities", name)
	}
	if at(c, "resources", "requests", "cpu") == nil || at(c, "resources", "limits", "memory") == nil {
		bad("container %s wants a request of CPU and a limit of memory", name)
	}
	if image := str(c, "image"); strings.HasSuffix(image, ":latest") || !strings.ContainsAny(image[strings.LastIndex(image, "/")+1:], ":@") {
		bad("container %s: which %s?", name, image)
	}
	ports := map[string]bool{}
	for _, p := range list(c, "ports") {
		ports[str(p, "name")] = true
	}
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if p := at(c, probe, "httpGet", "port"); p != nil && !ports[fmt.Sprint(p)] {
			bad("container %s: its %s asks a port that it has not: %v", name, probe, p)
		}
	}
	env := map[string]string{}
	for _, e := range list(c, "env") {
		if _, there := env[str(e, "name")]; there {
			bad("container %s: %s twice", name, str(e, "name"))
		}
		env[str(e, "name")] = str(e, "value")
		if strings.HasPrefix(str(e, "name"), "AEP_TOKEN") && str(e, "name") != "AEP_TOKEN_FILE" {
			bad("container %s: a token in its environment", name)
		}
	}
	if env["AEP_TOKEN_FILE"] != "" && strings.HasPrefix(env["AEP_COLLECTOR"], "http://") && env["AEP_PLAIN_HTTP"] != "true" {
		bad("container %s: it refuses to send its token to %s: it is plain HTTP", name, env["AEP_COLLECTOR"])
	}
}

// keepRules hold session logs to less than their volume: a pod that fills an
// emptyDir is evicted.
func keepRules(spec, c object, bad func(string, ...any)) {
	for _, m := range list(c, "volumeMounts") {
		if str(m, "mountPath") != "/var/lib/aep" {
			continue
		}
		for _, v := range list(spec, "volumes") {
			limit := mebibytes(str(v, "emptyDir", "sizeLimit"))
			if str(v, "name") != str(m, "name") || limit == 0 {
				continue
			}
			keep := 2048. // what serve keeps when it is told nothing
			for _, e := range list(c, "env") {
				if str(e, "name") == "AEP_KEEP_SIZE" {
					keep = mebibytes(strings.TrimSuffix(str(e, "value"), "B"))
				}
			}
			if keep == 0 || keep > limit*0.8 {
				bad("sidecar %s: it keeps %v MiB of logs in a volume of %v MiB", str(c, "name"), keep, limit)
			}
		}
	}
}

// mebibytes is a quantity with one of the units that are used here.
func mebibytes(q string) float64 {
	for unit, factor := range map[string]float64{"Mi": 1, "Gi": 1024, "Ti": 1 << 20} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(q, unit), 64); err == nil && strings.HasSuffix(q, unit) {
			return n * factor
		}
	}
	return 0
}

// sidecarRules hold for a native sidecar: it is there before the agent, and ends
// after it within the pod's time.
func sidecarRules(spec, c object, kind string, bad func(string, ...any)) {
	if kind != "initContainers" || c["restartPolicy"] != "Always" {
		bad("container %s: only an init container has a restartPolicy of its own, and that is Always", str(c, "name"))
	}
	if at(c, "startupProbe", "httpGet") == nil {
		bad("sidecar %s: without a startup probe the agent starts before its hooks are taken", str(c, "name"))
	}
	keepRules(spec, c, bad)
	args, _ := c["args"].([]any)
	grace, _ := at(spec, "terminationGracePeriodSeconds").(float64)
	for _, a := range args {
		if d, ok := strings.CutPrefix(fmt.Sprint(a), "--drain="); ok {
			seconds, err := strconv.ParseFloat(strings.TrimSuffix(d, "s"), 64)
			if err != nil || grace <= seconds {
				bad("sidecar %s: it is killed after %v seconds, while it drains for %s", str(c, "name"), grace, d)
			}
		}
	}
}
