package browser

import (
	"fmt"
	"strings"
	"time"
)

// Eval evaluates an expression in the page, waits for a promise, and stores its value.
func (b *Browser) Eval(expression string, out any) {
	b.t.Helper()
	if err := b.run(expression, out); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

// Until waits until an expression is true in the page.
func (b *Browser) Until(what, expression string) {
	b.t.Helper()
	var holds bool
	var err error
	for end := time.Now().Add(Limit); ; time.Sleep(10 * time.Millisecond) {
		// Between two pages, there is nothing to evaluate in.
		if err = b.run("!!("+expression+")", &holds); err == nil && holds {
			return
		}
		if time.Now().After(end) {
			p, _ := b.Page()
			b.t.Fatalf("not within %v: %s: %s, %v; the browser shows %+v; problems %q", Limit, what, expression, err, p, b.Problems())
		}
	}
}

// find is an expression for the first element that is shown, matches a selector, and has a
// text or a label, unless it is empty.
func find(selector, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => {
		const name = %q
		return e.checkVisibility() && (!name || [e.innerText || e.value || '', e.getAttribute('aria-label') || ''].some(s => s.replace(/\s+/g, ' ').trim() === name))
	})`, selector, text)
}

// Click waits for an element and presses the mouse on it. If there is a text, it is the whole
// text or the label of the element. Until or Wait waits for what follows.
func (b *Browser) Click(selector, text string) {
	b.t.Helper()
	e := find(selector, text)
	b.Until("there is "+selector+" "+text, fmt.Sprintf(`(e => e && !e.disabled)(%s)`, e))
	var at struct{ X, Y float64 }
	b.Eval(fmt.Sprintf(`(e => {
		e.scrollIntoView({block: 'center', behavior: 'instant'})
		const r = e.getBoundingClientRect()
		return {x: r.x + r.width / 2, y: r.y + r.height / 2}
	})(%s)`, e), &at)
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		b.must("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// Has reports whether an element is shown.
func (b *Browser) Has(selector, text string) (has bool) {
	b.t.Helper()
	b.Eval("!!"+find(selector, text), &has)
	return has
}

// keys are the keys with names: code, number, and text.
var keys = map[string]struct {
	number int
	text   string
}{
	"Tab": {9, ""}, "Enter": {13, "\r"}, "Escape": {27, ""}, "Space": {32, " "}, "End": {35, ""}, "Home": {36, ""},
	"ArrowLeft": {37, ""}, "ArrowUp": {38, ""}, "ArrowRight": {39, ""}, "ArrowDown": {40, ""}, "Backspace": {8, ""},
}

// Keys presses keys one after the other: "Tab", "Enter", "j", or with Shift, Ctrl or Meta:
// "Shift+Tab", "Ctrl+.".
func (b *Browser) Keys(all ...string) {
	b.t.Helper()
	for _, key := range all {
		modifiers, name := 0, key
		for prefix, bit := range map[string]int{"Alt+": 1, "Ctrl+": 2, "Meta+": 4, "Shift+": 8} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				modifiers, name = modifiers|bit, rest
			}
		}
		params := map[string]any{"type": "keyDown", "key": name, "code": name, "modifiers": modifiers}
		if k, ok := keys[name]; ok {
			params["windowsVirtualKeyCode"], params["text"] = k.number, k.text
			if name == "Space" {
				params["key"] = " "
			}
		} else {
			params["text"], params["code"] = name, ""
			params["windowsVirtualKeyCode"] = int(strings.ToUpper(name)[0])
		}
		if modifiers&^8 != 0 || params["text"] == "" {
			delete(params, "text")
			params["type"] = "rawKeyDown"
		}
		b.must("Input.dispatchKeyEvent", params, nil)
		params["type"] = "keyUp"
		delete(params, "text")
		b.must("Input.dispatchKeyEvent", params, nil)
	}
}

// Type types a text into what has the focus.
func (b *Browser) Type(text string) {
	b.t.Helper()
	b.must("Input.insertText", map[string]any{"text": text}, nil)
}

// Cookies returns the cookies of the page, as a header.
func (b *Browser) Cookies() string {
	b.t.Helper()
	var got struct {
		Cookies []struct{ Name, Value string }
	}
	b.must("Network.getCookies", nil, &got)
	var all []string
	for _, c := range got.Cookies {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}

// Focused is the element with the focus.
type Focused struct {
	Tag, ID, Name, Type, Href string
	// Label is its label or text.
	Label string
	// Shown reports whether it is in view, and has an outline that shows the focus.
	Shown bool
}

// Focused returns the element with the focus.
func (b *Browser) Focused() (f Focused) {
	b.t.Helper()
	b.Eval(`(() => {
		const e = document.activeElement || document.body
		const label = e.getAttribute('aria-label') || (e.labels && e.labels[0] ? e.labels[0].innerText : '') || e.innerText || e.value || ''
		const r = e.getBoundingClientRect(), style = getComputedStyle(e)
		const ring = s => parseFloat(s.outlineWidth) > 0 && s.outlineStyle !== 'none'
		const outlined = [e, e.parentElement, e.parentElement?.parentElement, e.nextElementSibling].some(n => n && (ring(getComputedStyle(n)) || ring(getComputedStyle(n, '::after'))))
		return {
			tag: e.localName, id: e.id || '', name: e.name || '', type: e.type || '', href: e.getAttribute('href') || '',
			label: label.replace(/\s+/g, ' ').trim().slice(0, 200),
			shown: e !== document.body && r.width > 0 && r.height > 0 && style.visibility === 'visible' && r.bottom > 0 && r.top < innerHeight && outlined,
		}
	})()`, &f)
	return f
}

// TabTo presses Tab until the element with the focus is as wanted, at most max times. It
// returns how often.
func (b *Browser) TabTo(what string, max int, is func(Focused) bool) int {
	b.t.Helper()
	var passed []string
	for n := 1; n <= max; n++ {
		b.Keys("Tab")
		f := b.Focused()
		if is(f) {
			return n
		}
		passed = append(passed, f.Tag+" "+f.Label)
	}
	b.t.Fatalf("%d times Tab did not reach %s; it passed %q", max, what, passed)
	return 0
}

// Clear empties the field with a selector, and gives it the focus.
func (b *Browser) Clear(selector string) {
	b.t.Helper()
	b.Click(selector, "")
	b.Eval(fmt.Sprintf(`document.querySelector(%q).select()`, selector), nil)
	b.Keys("Backspace")
}

// Choose chooses a file in a field for files.
func (b *Browser) Choose(selector, path string) {
	b.t.Helper()
	var document struct{ Root struct{ NodeID int } }
	b.must("DOM.getDocument", nil, &document)
	var field struct{ NodeID int }
	b.must("DOM.querySelector", map[string]any{"nodeId": document.Root.NodeID, "selector": selector}, &field)
	b.must("DOM.setFileInputFiles", map[string]any{"nodeId": field.NodeID, "files": []string{path}}, nil)
}
