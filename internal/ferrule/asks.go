package ferrule

import "slices"

// Asks is the tool that a call is of: one of the device's, or, for another act, one
// that only looks and stands for what is asked; nil if there is none.
func (m *Manifest) ToolFor(act Operation, name string) *Tool {
	if act == CallTool {
		return m.Tool(name)
	}
	if !m.Supports(act) || name == "" || len(name) > MaxURI {
		return nil
	}
	stand := &Tool{Name: name, Effect: Reads, Check: noArguments}
	switch act {
	case GetPrompt:
		i := slices.IndexFunc(m.Prompts, func(p Prompt) bool { return p.Name == name })
		if i < 0 {
			return nil
		}
		stand.Check = m.Prompts[i].check
	case Complete:
		stand.Check = checkCompletion
	case Subscribe, Unsubscribe:
		stand.Cache = new(Duration) // each is to be told to the device
	}
	return stand
}

func noArguments(args map[string]any) (wrong []string) {
	if len(args) > 0 {
		wrong = append(wrong, "it takes no arguments")
	}
	return wrong
}

// checkCompletion names what is wrong with a Completion.
func checkCompletion(args map[string]any) (wrong []string) {
	if name, ok := args["argument"].(string); !ok || name == "" {
		wrong = append(wrong, "argument: missing; want the name of what is being filled in")
	}
	if _, ok := args["value"].(string); !ok {
		wrong = append(wrong, "value: missing; want the text that is there so far")
	}
	return wrong
}

// check names what is wrong with what the places are filled in with: each is a text.
func (p Prompt) check(args map[string]any) (wrong []string) {
	for _, a := range p.Arguments {
		if _, given := args[a.Name]; a.Required && !given {
			wrong = append(wrong, a.Name+": missing")
		}
	}
	for name, value := range args {
		if _, ok := value.(string); !ok {
			wrong = append(wrong, Clean(name, MaxToolName)+": want text")
		}
		if !slices.ContainsFunc(p.Arguments, func(a PromptArgument) bool { return a.Name == name }) {
			wrong = append(wrong, Clean(name, MaxToolName)+": there is no such argument")
		}
	}
	slices.Sort(wrong)
	return wrong
}
