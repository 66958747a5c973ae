package template

import (
	"fmt"
	"slices"
	"strings"
)

// parser reads a template. Its methods panic with a parseError.
type parser struct {
	lexer
	depth int
	tok   token
}

// parseError is an error at a place of a template. It names only words of the language,
// never a text in quotes: that could be a code.
type parseError struct {
	at   int
	what string
}

func (e parseError) Error() string { return fmt.Sprintf("template, byte %d: %s", e.at+1, e.what) }

func parse(text string) (t *Template, err error) {
	if len(text) > maxText {
		return nil, errorf("template is longer than %d bytes", maxText)
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case parseError:
			t, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{lexer: lexer{src: text}}
	body, _ := p.body(nil)
	if path := pathOf(body); path != nil {
		return &Template{path: path}, nil
	}
	return &Template{body: slices.Clip(body)}, nil
}

// pathOf returns the path that a template reads if it does nothing else.
func pathOf(body []node) []string {
	if len(body) != 1 {
		return nil
	}
	out, ok := body[0].(output)
	if !ok {
		return nil
	}
	var path []string
	for e := out.x; ; {
		switch of := e.(type) {
		case name:
			path = append(path, string(of))
			slices.Reverse(path)
			return slices.Clip(path)
		case *attr:
			if of.dot && isMethod(of.name) {
				return nil
			}
			path = append(path, of.name)
			e = of.x
		default:
			return nil
		}
	}
}

// enter counts a level of nesting.
func (p *parser) enter() {
	if p.depth++; p.depth > maxDepth {
		p.fail("is nested too deeply")
	}
}

func (p *parser) leave() { p.depth-- }

// unexpected fails because of the current token.
func (p *parser) unexpected() {
	p.failAt(p.tok.at, "%s is not understood here", p.tok.describe())
}

// advance reads the next token of an expression.
func (p *parser) advance() token {
	was := p.tok
	p.tok = p.lex()
	return was
}

// is reports whether the current token is an operator or a word.
func (p *parser) is(text string) bool {
	return (p.tok.kind == operator || p.tok.kind == word) && p.tok.text == text
}

// accept reads a token if it is the given one.
func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.unexpected()
	}
}

// body reads text and tags up to one of the ending tags, whose word it returns. The end of
// the text ends the outermost body only.
func (p *parser) body(ends []string) ([]node, string) {
	p.enter()
	defer p.leave()
	var made []node
	for {
		if data := p.data(); data != "" {
			made = append(made, literal(data))
		}
		switch p.open() {
		case "":
			if ends != nil {
				p.fail("a block has no end")
			}
			return made, ""
		case "{{":
			p.advance()
			x := p.expression()
			p.close("}}")
			made = append(made, output{x})
		default:
			p.advance()
			if p.tok.kind != word {
				p.unexpected()
			}
			if slices.Contains(ends, p.tok.text) {
				return made, p.advance().text
			}
			made = append(made, p.statement())
		}
	}
}

// close ends a tag.
func (p *parser) close(mark string) {
	if p.tok.kind != ending || p.tok.text != mark {
		p.unexpected()
	}
}

// statement reads a tag that starts with a word.
func (p *parser) statement() node {
	switch p.tok.text {
	case "if":
		p.advance()
		made := branch{}
		for {
			test := p.expression()
			p.close("%}")
			body, end := p.body([]string{"elif", "else", "endif"})
			made = append(made, choice{test, slices.Clip(body)})
			if end == "elif" {
				continue
			}
			if end == "else" {
				p.close("%}")
				body, _ = p.body([]string{"endif"})
				made = append(made, choice{nil, slices.Clip(body)})
			}
			p.close("%}")
			return slices.Clip(made)
		}
	case "set":
		p.advance()
		if p.tok.kind != word || reserved(p.tok.text) {
			p.unexpected()
		}
		to := p.advance().text
		p.expect("=")
		x := p.expression()
		p.close("%}")
		return set{to, x}
	}
	p.failAt(p.tok.at, "{%% %s %%} is not understood", p.tok.describe())
	return nil
}

// expression reads: a if b else c.
func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	x := p.or()
	for p.accept("if") {
		test := p.or()
		var other expr
		if p.accept("else") {
			other = p.expression()
		}
		x = &conditional{test, x, other}
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for p.accept("or") {
		x = &logic{x, p.and(), true}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.accept("and") {
		x = &logic{x, p.not(), false}
	}
	return x
}

func (p *parser) not() expr {
	if p.accept("not") {
		p.enter()
		defer p.leave()
		return &unary{"not", p.not()}
	}
	return p.comparison()
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) comparison() expr {
	x := p.sum()
	var chain *comparison
	for {
		op := p.tok.text
		switch {
		case p.tok.kind == operator && slices.Contains(comparisons, op), p.is("in"):
			p.advance()
		case p.is("not"):
			p.advance()
			if op = "not in"; !p.is("in") {
				p.unexpected()
			}
			p.advance()
		default:
			if chain != nil {
				return chain
			}
			return x
		}
		if chain == nil {
			chain = &comparison{first: x}
		}
		chain.ops, chain.rest = append(chain.ops, op), append(chain.rest, p.sum())
	}
}

// sum reads + and -, then ~, then * and so on, which bind more and more tightly.
func (p *parser) sum() expr {
	return p.binary([][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}})
}

func (p *parser) binary(levels [][]string) expr {
	if len(levels) == 0 {
		return p.unary(true)
	}
	x := p.binary(levels[1:])
	for p.tok.kind == operator && slices.Contains(levels[0], p.tok.text) {
		op := p.advance().text
		x = &binary{op, x, p.binary(levels[1:])}
	}
	return x
}

func (p *parser) unary(filters bool) expr {
	var x expr
	if p.is("-") || p.is("+") {
		p.enter()
		defer p.leave()
		x = &unary{p.advance().text, p.unary(false)}
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	for filters {
		switch {
		case p.accept("|"):
			x = p.filter(x)
		case p.accept("is"):
			x = p.test(x)
		default:
			return x
		}
	}
	return x
}

// reserved reports whether a word cannot be a variable.
func reserved(w string) bool {
	return slices.Contains([]string{"if", "else", "elif", "and", "or", "not", "in", "is", "true", "false", "none", "True", "False", "None"}, w)
}

func (p *parser) primary() expr {
	switch p.tok.kind {
	case word:
		return p.word()
	case str:
		s := p.advance().text
		for p.tok.kind == str {
			s += p.advance().text
		}
		return constant{s}
	case num:
		return constant{parseNumber(p.advance().text)}
	}
	switch {
	case p.accept("("):
		x := p.expression()
		p.expect(")")
		return x
	case p.accept("["):
		return listLiteral(p.list("]"))
	case p.accept("{"):
		made := &dictLiteral{}
		for !p.accept("}") {
			made.keys = append(made.keys, p.expression())
			p.expect(":")
			made.values = append(made.values, p.expression())
			if !p.is("}") {
				p.expect(",")
			}
		}
		return made
	}
	p.unexpected()
	return nil
}

// word reads a constant, a variable or a call of a function.
func (p *parser) word() expr {
	switch p.tok.text {
	case "true", "True", "false", "False":
		return constant{strings.EqualFold(p.advance().text, "true")}
	case "none", "None":
		p.advance()
		return constant{nil}
	}
	if reserved(p.tok.text) {
		p.unexpected()
	}
	w := p.advance()
	if !p.is("(") {
		return name(w.text)
	}
	of, ok := functions[w.text]
	if !ok {
		p.failAt(w.at, "the function %s is not understood", w.describe())
	}
	p.advance()
	return p.call(nil, of, w)
}

// list reads expressions up to an ending token.
func (p *parser) list(end string) []expr {
	var made []expr
	for !p.accept(end) {
		made = append(made, p.expression())
		if !p.is(end) {
			p.expect(",")
		}
	}
	return slices.Clip(made)
}

// postfix reads .name, .name(), [index] and [from:to].
func (p *parser) postfix(x expr) expr {
	for {
		switch {
		case p.accept("."):
			n := p.advance()
			switch {
			case n.kind == num && isDigits(n.text):
				x = &index{x, constant{parseNumber(n.text)}}
				continue
			case n.kind != word:
				p.failAt(n.at, "%s is not understood here", n.describe())
			}
			if !p.is("(") {
				x = &attr{x, n.text, true}
				continue
			}
			of, ok := methods[n.text]
			if !ok {
				p.failAt(n.at, "the method %s is not understood", n.describe())
			}
			p.advance()
			x = p.call(x, of, n)
		case p.accept("["):
			x = p.subscript(x)
		case p.is("("):
			p.failAt(p.tok.at, "this call is not understood")
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr) expr {
	var from, to expr
	if !p.is(":") {
		from = p.expression()
		if p.accept("]") {
			if c, ok := from.(constant); ok {
				if s, ok := c.v.(string); ok {
					return &attr{x, s, false}
				}
			}
			return &index{x, from}
		}
	}
	p.expect(":")
	if !p.is("]") {
		to = p.expression()
	}
	p.expect("]")
	return &slice{x, from, to}
}

func (p *parser) filter(x expr) expr {
	n := p.advance()
	if n.kind != word {
		p.failAt(n.at, "%s is not understood here", n.describe())
	}
	of, ok := filters[n.text]
	if !ok {
		p.failAt(n.at, "the filter %s is not understood", n.describe())
	}
	if p.accept("(") {
		return p.call(x, of, n)
	}
	if of.min > 0 {
		p.failAt(n.at, "the filter %s needs arguments", n.describe())
	}
	return &call{x, of, make([]expr, len(of.params))}
}

func (p *parser) test(x expr) expr {
	negated := p.accept("not")
	n := p.advance()
	of, ok := tests[n.text]
	if n.kind != word || !ok {
		p.failAt(n.at, "the test %s is not understood", n.describe())
	}
	var args []expr
	if len(of.params) > 0 {
		args = []expr{p.postfix(p.primary())}
	}
	var made expr = &call{x, of, args}
	if negated {
		made = &unary{"not", made}
	}
	return made
}

// call reads arguments after the opening parenthesis, and puts those that are named in
// their places.
func (p *parser) call(x expr, of *callable, n token) expr {
	args := make([]expr, len(of.params))
	given := 0
	for i := 0; !p.accept(")"); i++ {
		at := i
		if p.tok.kind == word && p.following("=") {
			at = slices.Index(of.params, p.advance().text)
			p.advance()
		} else if given < i {
			p.unexpected()
		} else {
			given++
		}
		if at < 0 || at >= len(args) || args[at] != nil {
			p.failAt(n.at, "the arguments of %s are not understood", n.describe())
		}
		args[at] = p.expression()
		if !p.is(")") {
			p.expect(",")
		}
	}
	for _, arg := range args[:of.min] {
		if arg == nil {
			p.failAt(n.at, "%s needs more arguments", n.describe())
		}
	}
	return &call{x, of, args}
}
